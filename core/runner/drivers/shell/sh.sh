# The driver of a session in a POSIX shell (dash, busybox), for systems without bash. The end of such a shell cannot be caught:
# after exit, set -e, an interrupt, or an error in a special builtin, the runner starts the shell again and reports a restart.
#
# Fields come as lines in the form that printf's %b reads.
exec 9<&3 3<&-
__pyexec_last=0 __pyexec_n=0 __pyexec_in=
__pyexec_status() { return "$__pyexec_last"; }
trap 'exit 130' INT
while IFS= read -r __pyexec_op <&9 && [ "$__pyexec_op" != start ]; do :; done
for __pyexec_op in 1 2 3 4; do IFS= read -r __pyexec_in <&9 || exit; done
printf '{"op":"ready"}\n' >&9
__pyexec_busy=
while
  if [ "$__pyexec_busy" ]; then # also reached by continue
    __pyexec_last=${__pyexec_after:-0}
    [ ! "$__pyexec_in" ] || exec </dev/null
    printf '{"op":"done","n":%d,"code":%d}\n' "$__pyexec_n" "$__pyexec_last" >&9
  fi
  IFS= read -r __pyexec_op <&9 && IFS= read -r __pyexec_n <&9 && IFS= read -r __pyexec_in <&9 &&
    IFS= read -r __pyexec_in <&9 && IFS= read -r __pyexec_op <&9
do
  __pyexec_busy=1 __pyexec_after=
  if [ "$__pyexec_in" ]; then
    exec <"$__pyexec_in"
    rm -f -- "$__pyexec_in"
    printf '{"op":"reading","n":%d}\n' "$__pyexec_n" >&9
  fi
  __pyexec_op=$(printf %b. "$__pyexec_op")
  __pyexec_op=${__pyexec_op%.}
  __pyexec_status
  eval "$__pyexec_op"
  __pyexec_after=$?
done
exit
