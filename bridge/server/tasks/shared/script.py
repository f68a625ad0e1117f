"""Script of Redis that changes tasks: each operation is one step, which happens as a whole or not at all.

Keys, after the prefix of the server:

    task:ID      hash: state, status, outcome, request, tool, runner, fence, runs, again, cancelled
    answers:ID   hash: answers to questions, by key
    queue        sorted set: tasks that wait for a process, by their creation
    queue:TOOL   the same of one tool, so that a process finds those that it can run
    queued       set: tools of which tasks wait
    of:RUNNER    set: tasks that a process runs
    mail:RUNNER  list: tasks that have answers for a process, or a cancellation
    runners      set: processes that run tasks, or did
    served       sorted set: tools whose waiting tasks a process could run, by the time at which one last said so
    kept         sorted set: all tasks, by their expiry
    sizes        hash: account, bytes, and 1 if it has not ended, of each task
    taken        hash: bytes and unfinished tasks of all callers, and of each

Expired tasks are deleted by the next operation that needs their room; Redis itself deletes each a minute later, and all
other keys two minutes after the last task, if no process is left that would. Times of expiry are by the clock of Redis,
since those of processes may differ.

A task is claimed with a number, its fence, which grows with each claim. Only the process that holds the last one may
change the state, so that a process that was taken for dead changes nothing. A task with an earlier fence than that of a
process is gone for it: Redis has lost the claim, and the process stores the task again. The fence 0 marks a task that
has failed because Redis has lost it, which a process may still run.
"""

EXPIRED_MILLISECONDS = 60_000
"""Time for which Redis has a task that has expired; it is unknown then."""

SCRIPT = """
local prefix, operation = KEYS[1], ARGV[1]
local function key(kind, name) return prefix .. ':' .. kind .. (name and ':' .. name or '') end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local kept, sizes, taken, queue, runners = key('kept'), key('sizes'), key('taken'), key('queue'), key('runners')

local function tell(to, kind, id, ended)
  redis.call('PUBLISH', key('to', to), cjson.encode({kind = kind, id = id, from = '', ended = ended or false}))
end
local function count(what, account, number)
  redis.call('HINCRBY', taken, what, number)
  if account ~= '' then
    local own = what .. ':' .. account
    if redis.call('HINCRBY', taken, own, number) == 0 then redis.call('HDEL', taken, own) end
  end
end
local function has_room(what, account, wanted, places)
  local all = tonumber(redis.call('HGET', taken, what) or 0)
  local own = account ~= '' and tonumber(redis.call('HGET', taken, what .. ':' .. account) or 0) or 0
  return all + wanted + own <= places
end
local function resize(id, bytes, open)
  local before = redis.call('HGET', sizes, id)
  if not before then return end
  local size = cjson.decode(before)
  count('bytes', size[1], bytes - size[2])
  count('open', size[1], open - size[3])
  redis.call('HSET', sizes, id, cjson.encode({size[1], bytes, open}))
end
local function dequeue(id, tool)
  redis.call('ZREM', queue, id)
  redis.call('ZREM', key('queue', tool), id)
  if redis.call('EXISTS', key('queue', tool)) == 0 then redis.call('SREM', key('queued'), tool) end
end
local function forget(id)
  resize(id, 0, 0)
  redis.call('HDEL', sizes, id)
  redis.call('ZREM', kept, id)
  redis.call('ZREM', queue, id)
  local found = redis.call('HMGET', key('task', id), 'runner', 'tool')
  if found[1] and found[1] ~= '' then redis.call('SREM', key('of', found[1]), id) end
  if found[2] then dequeue(id, found[2]) end
  redis.call('DEL', key('task', id), key('answers', id))
end
local function expire()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', kept, '-inf', now, 'LIMIT', 0, 100)) do forget(id) end
end
local function is_final(status) return status == 'completed' or status == 'failed' or status == 'cancelled' end
local function held(id, runner, fence)
  local found = redis.call('HMGET', key('task', id), 'status', 'runner', 'fence')
  if not found[1] or tonumber(found[3]) < tonumber(fence) then return 'gone' end
  if found[2] ~= runner or found[3] ~= fence then return 'lost' end
  return is_final(found[1]) and 'ended' or 'held'
end
local function keep_with_tasks(...)
  local last = redis.call('ZRANGE', kept, -1, -1, 'WITHSCORES')[2]
  for _, name in ipairs({...}) do
    if last and last ~= 'inf' then
      redis.call('PEXPIREAT', name, math.max(tonumber(last), now) + 120000)
    else
      redis.call('PERSIST', name)
    end
  end
end
local function enqueue(id, tool, created)
  redis.call('ZADD', queue, created, id)
  redis.call('ZADD', key('queue', tool), created, id)
  redis.call('SADD', key('queued'), tool)
  keep_with_tasks(queue, key('queue', tool), key('queued'))
end
local function hold(id, runner)
  redis.call('SADD', key('of', runner), id)
  redis.call('SADD', runners, runner)
  keep_with_tasks(key('of', runner), runners)
end
local function mail(id, runner)
  redis.call('RPUSH', key('mail', runner), id)
  keep_with_tasks(key('mail', runner))
  tell(runner, 'mail', id)
end
local function add(id, left, account, bytes, runner, fence, fields)
  redis.call('HSET', key('task', id), 'runner', runner, 'fence', fence, unpack(fields))
  if left ~= '' then redis.call('PEXPIREAT', key('task', id), now + left + 60000) end
  redis.call('ZADD', kept, left ~= '' and now + left or '+inf', id)
  local open = runner ~= '' and 1 or 0
  redis.call('HSET', sizes, id, cjson.encode({account, bytes, open}))
  count('bytes', account, bytes)
  count('open', account, open)
  if runner ~= '' then hold(id, runner) end
  keep_with_tasks(kept, sizes, taken)
end
local function rest(first)
  local fields = {}
  for i = first, #ARGV do fields[#fields + 1] = ARGV[i] end
  return fields
end

local operations = {}

function operations.room(account, bytes, max_tasks, max_bytes)
  expire()
  if not has_room('open', account, 1, tonumber(max_tasks)) then return 'tasks' end
  if not has_room('bytes', account, tonumber(bytes), tonumber(max_bytes)) then return 'bytes' end
  return 'ok'
end

function operations.create(id, left, account, bytes, max_tasks, max_bytes, runner)
  local room = operations.room(account, bytes, max_tasks, max_bytes)
  if room == 'ok' then add(id, left, account, tonumber(bytes), runner, '1', rest(9)) end
  return room
end

function operations.restore(id, left, account, bytes, runner, fence)
  local found = held(id, runner, fence)
  if found ~= 'gone' then return found end
  forget(id)
  add(id, left, account, tonumber(bytes), runner, fence, rest(8))
  tell('all', 'changed', id)
  return 'held'
end

function operations.claim(runner, most, skipped)
  expire()
  local skip, waiting, found = {}, {}, {}
  for _, tool in ipairs(cjson.decode(skipped)) do skip[tool] = true end
  for _, tool in ipairs(redis.call('SMEMBERS', key('queued'))) do
    if not skip[tool] then
      local oldest = redis.call('ZRANGE', key('queue', tool), 0, most - 1, 'WITHSCORES')
      for i = 1, #oldest, 2 do waiting[#waiting + 1] = {oldest[i], tonumber(oldest[i + 1]), tool} end
    end
  end
  table.sort(waiting, function(one, other) return one[2] < other[2] end)
  for i = 1, math.min(#waiting, most) do
    local id, tool = waiting[i][1], waiting[i][3]
    local task = key('task', id)
    dequeue(id, tool)
    if redis.call('EXISTS', task) == 1 then
      redis.call('HINCRBY', task, 'fence', 1)
      redis.call('HINCRBY', task, 'runs', 1)
      redis.call('HSET', task, 'runner', runner)
      hold(id, runner)
      found[#found + 1] = id
    end
  end
  return found
end

function operations.put(id, runner, fence, status, state)
  local found = held(id, runner, fence)
  if found == 'held' then
    redis.call('HSET', key('task', id), 'status', status, 'state', state)
    tell('all', 'changed', id)
  end
  return found
end

function operations.finish(id, runner, fence, status, state, outcome, bytes, max_bytes)
  local found = held(id, runner, fence)
  if found ~= 'held' then return found end
  local size = cjson.decode(redis.call('HGET', sizes, id))
  if max_bytes ~= '' and not has_room('bytes', size[1], bytes - size[2], tonumber(max_bytes)) then return 'full' end
  redis.call('HSET', key('task', id), 'status', status, 'state', state, 'outcome', outcome)
  redis.call('HDEL', key('task', id), 'request')
  redis.call('DEL', key('answers', id))
  redis.call('SREM', key('of', runner), id)
  resize(id, tonumber(bytes), 0)
  tell('all', 'changed', id, true)
  return 'done'
end

function operations.release(id, runner, fence, created, counted, state)
  local found = held(id, runner, fence)
  if found ~= 'held' then return found end
  local task = key('task', id)
  redis.call('HSET', task, 'runner', '')
  if state ~= '' then redis.call('HSET', task, 'status', 'working', 'state', state) end
  if counted == '' then redis.call('HINCRBY', task, 'runs', -1) end
  redis.call('SREM', key('of', runner), id)
  enqueue(id, redis.call('HGET', task, 'tool'), created)
  tell('all', 'queued', id)
  if state ~= '' then tell('all', 'changed', id) end
  return 'held'
end

function operations.answer(id)
  local task, given = key('task', id), rest(3)
  local found = redis.call('HMGET', task, 'status', 'runner')
  if not found[1] or is_final(found[1]) then return 'gone' end
  for i = 1, #given, 2 do redis.call('HSETNX', key('answers', id), given[i], given[i + 1]) end
  local left = redis.call('PTTL', task)
  if left > 0 then redis.call('PEXPIRE', key('answers', id), left) end
  if found[2] ~= '' then mail(id, found[2]) end
  tell('all', 'changed', id)
  return 'ok'
end

function operations.cancel(id, state, bytes)
  local task = key('task', id)
  local found = redis.call('HMGET', task, 'status', 'runner', 'tool')
  if not found[1] or is_final(found[1]) then return 'ended' end
  if found[2] == '' then
    dequeue(id, found[3])
    redis.call('HSET', task, 'status', 'cancelled', 'state', state)
    redis.call('HDEL', task, 'request')
    redis.call('DEL', key('answers', id))
    resize(id, tonumber(bytes), 0)
    tell('all', 'changed', id, true)
    return 'done'
  else
    redis.call('HSET', task, 'cancelled', '1')
    mail(id, found[2])
  end
  return 'ok'
end

function operations.misfit(id, question)
  local task = key('task', id)
  local status = redis.call('HGET', task, 'status')
  if not status or is_final(status) then return 1 end
  return redis.call('HSETNX', task, 'misfit:' .. question, '1')
end

function operations.serve(lasts, tools)
  for _, tool in ipairs(cjson.decode(tools)) do redis.call('ZADD', key('served'), now, tool) end
  redis.call('ZREMRANGEBYSCORE', key('served'), '-inf', now - lasts)
  redis.call('PEXPIRE', key('served'), lasts)
  return 'ok'
end

function operations.is_served(lasts, tool)
  return (redis.call('ZSCORE', key('served'), tool) or 0) + lasts > now and 1 or 0
end

function operations.forget(id, runner)
  forget(id)
  redis.call('SREM', key('of', runner), id)
  return 'ok'
end

local arguments = {}
for i = 2, #ARGV do arguments[#arguments + 1] = ARGV[i] end
return operations[operation](unpack(arguments, 1, math.min(#arguments, 8)))
"""
