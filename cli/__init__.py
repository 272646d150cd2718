"""The command line: commands, rendering, receipts. Talks to supervisors over the client lane only."""
