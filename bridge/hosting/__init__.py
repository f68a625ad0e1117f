"""Running a server as a process: sockets, uvicorn, workers, drain, reload, admin pages."""
