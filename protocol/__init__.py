"""What may be said between the processes of haltline. Pure: no sockets, no clock, no randomness."""
