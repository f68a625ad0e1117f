"""State that replicas of one server share through Redis: sessions, events, rates and changes of tools.

Cluster ── all of it, for one app of `bridge.server.http_app`
  ├── Replica           the heartbeat of this replica, and its messages to and from others
  ├── SessionRecords    data to serve a session on any replica
  ├── ClusterSessions   the sessions that this replica serves, opened here or elsewhere, with all their settings
  ├── RedisEvents       events of a session's calls, for resumed streams
  ├── ClusterRates      usage of callers' rates on all replicas
  ╰── ClusterChanges    one notification of a change that happens in every replica

Calls of the modern era use none of this but rates. Needs the extra ``redis``.
"""

from bridge.server.cluster.cluster import Cluster

__all__ = ["Cluster"]
