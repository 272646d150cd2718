"""The embedded, scripted, fault-injecting model server. Imports nothing of the rest of haltline."""
