"""What replicas of one server share through Redis: sessions with their events and messages, rates, news of changes.

Shared ── the Redis and the replicas that use it; given to `bridge.server.http_app`
  ├── Link             this replica: its heartbeat, what it tells the others and what they tell it
  ├── Records          what is known of each session, wherever it was opened
  ├── ClusterSessions   the sessions that are alive here, opened or revived
  ├── ClusterLogLevels     from which severity on the client of each wants log messages
  ├── SessionEvents    what each call of a session has said, for a client that lost its stream
  ├── ClusterRates      what callers have used of their rates, anywhere
  ╰── ClusterChanges    one announcement of a change that every replica makes

Nothing here stands in the way of a call of the modern era. Needs the extra ``redis``.
"""

from bridge.redis import redis_at
from bridge.server.cluster.cluster import Cluster
from bridge.server.cluster.replica import Replica

__all__ = ["Cluster", "Replica", "redis_at"]
