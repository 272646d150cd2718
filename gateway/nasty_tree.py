"""A shell command that plants a process tree which does not want to die; for the scenario `tool_tree`.

One of each kind: plain child, child that ignores TERM, session of its own, double-forked daemon, nohup, stopped
process, holders of the output pipe, and a loop that starts its child again. All but the stopped one would end by
themselves after 600 s.
"""

NASTY_TREE = """\
sleep 600 &
sh -c 'trap "" TERM INT HUP; sleep 600; sleep 600' &
(setsid sh -c 'trap "" TERM INT HUP; sleep 600; sleep 600' >/dev/null 2>&1 &)
(setsid sh -c '(setsid sleep 600 &) ; exit 0' >/dev/null 2>&1 &)
(nohup sleep 600 >/dev/null 2>&1 &)
sh -c 'kill -STOP $$; sleep 600' &
(sleep 600 | sleep 600) &
(setsid sh -c 'trap "" TERM INT HUP; n=0; while [ $n -lt 600 ]; do sleep 1; n=$((n+1)); done' &)
echo planted
wait"""

PLANTED = 12
"""Processes that stand at least when all of it is planted; how many more depends on the shell."""
