"""Methods of the protocol, a file for each group; `registry` names them all."""
