"""Tasks on Redis, which any process of a server runs, and any replica answers for.

SharedTasks ── `Tasks` whose calls wait in a queue, and are claimed by processes that have room
  ├── RedisTaskStore   records, queue, claims, answers and maxima, each change in one step of Redis
  ├── TaskRunner       what one process claims, and what it takes from processes that have died
  ╰── Replica          heartbeat of this process, and messages to and from others
"""
