# The driver of a bash session. An interactive bash evaluates it as its PROMPT_COMMAND: at top level, outside of functions.
# Bash evaluates it again when it has dropped a command line (after an interrupt or a fatal error). The loop below never
# ends, so bash shows no prompt.
#
# Fields come over the control channel, each ended by a zero byte. Answers go there as lines of JSON (drivers/doc.go).
# `exit` ends the cell, not the shell. Where the shell ends nevertheless (set -e, `builtin exit`), the driver's EXIT trap
# executes bash again, with the variables, functions, aliases, options and traps. Only the numbers of the jobs are lost. If
# user code sets an EXIT trap of its own, the shell ends.
#
# Interrupts are for cells. Everything outside of a cell begins with __pyexec_hold, which ignores them: an interrupt during
# an answer would drop the answer, and the rest of it in a buffer would become output of the user. Until then an interrupt
# leads to the beginning of this text, as in a cell.
#
# A process forked by bash that is interrupted before it executes its command continues here, or after the cell, as if it
# were the shell. It must not read cells. It ends by the interrupt, as the command would have, so that bash notices it.
{
  if [[ $BASHPID != "$$" ]]; then
    trap - EXIT
    exec /bin/sh -c 'kill -INT $$'
  fi
  case $- in *x*) __pyexec_x='set -x;' && set +x ;; *) __pyexec_x= ;; esac
} 2>/dev/null
if [[ ${__pyexec_pid-} == "$$" ]]; then
  __pyexec_hold
else
  __pyexec_pid=$$
  export -n PROMPT_COMMAND PS1
  PS1= PS2=
  if [[ ${__pyexec_state-} ]]; then
    unset __pyexec_pid
    . "$__pyexec_state" 2>/dev/null
    rm -f -- "$__pyexec_state"
    jobs >/dev/null # drops the job of rm
    __pyexec_state=
    exec 2>&249 249>&- # the new shell was started without standard error
    __pyexec_first=
    set +m
    __pyexec_hold
  else
    exec 250<&3 3<&-
    exec 247<> <(:) # a pipe whose both ends this shell has
    __pyexec_first=$!
    __pyexec_busy= __pyexec_code=0 __pyexec_last=0 __pyexec_held= __pyexec_trap= __pyexec_said=0 __pyexec_n=0 __pyexec_in=
    __pyexec_driver=$PROMPT_COMMAND __pyexec_places=("${TMPDIR:-/tmp}" "$PWD")
    set +m +o history
    shopt -s expand_aliases execfail
    __pyexec_hold() {
      if [[ $BASHPID != "$$" ]]; then
        trap - EXIT
        exec /bin/sh -c 'kill -INT $$'
      fi
      if [[ ! $__pyexec_held ]]; then
        # Read the user's trap for interrupts. The number tells it from text that an interrupt has left in the pipe.
        __pyexec_said=$((__pyexec_said + 1))
        if { trap -p INT >&247 && printf '#%d\0' "$__pyexec_said" >&247; } 2>/dev/null; then
          while IFS= read -r -d '' -u 247 __pyexec_trap && [[ ${__pyexec_trap##*#} != "$__pyexec_said" ]]; do :; done
          __pyexec_trap=${__pyexec_trap%#*}
        else # in a cell the pipe is closed
          __pyexec_trap=$(trap -p INT)
        fi
        __pyexec_held=1
      fi
      trap '' INT
    }
    exit() {
      __pyexec_code=$?
      ((BASH_SUBSHELL == 0)) || builtin exit "${@-$__pyexec_code}"
      __pyexec_hold
      __pyexec_code=${1-$__pyexec_code}
      case $__pyexec_code in
      '' | *[!0-9-]* | ?*-*)
        printf 'bash: exit: %s: numeric argument required\n' "$__pyexec_code" >&2
        __pyexec_code=2
        ;;
      esac
      __pyexec_code=$((__pyexec_code & 255)) __pyexec_busy=exit
      exec 248>&2 2>/dev/null # bash reports the interrupt there
      trap - INT
      kill -INT "$$"
      : # here bash handles the signal and drops the command line
    }
    __pyexec_status() { return "$__pyexec_last"; }
    __pyexec_exit() {
      __pyexec_last=$?
      { set +xeu; } 2>/dev/null
      __pyexec_hold
      for __pyexec_place in "${__pyexec_places[@]}"; do
        __pyexec_state=$__pyexec_place/.pyexec-state
        {
          shopt -p
          alias -p
          declare -f
          declare -p
          echo '__pyexec_busy='
          trap -p
          set +o
          echo :
        } >"$__pyexec_state" && break
        rm -f -- "$__pyexec_state"
        __pyexec_state=
      done 2>/dev/null
      if [[ ! $__pyexec_state ]]; then
        printf 'bash: the shell has ended, and there is no room in %s to keep its state\n' "${__pyexec_places[0]}" >&2
        return # the shell ends
      fi
      if [[ $__pyexec_busy ]]; then
        __pyexec_busy=
        printf '{"op":"done","n":%d,"code":%d}\n' "$__pyexec_n" "$__pyexec_last" >&250
      fi
      export __pyexec_state
      trap - INT # the new shell would inherit an ignored signal for good
      # bash complains on standard error that it has no terminal.
      PS1= PROMPT_COMMAND=$__pyexec_driver exec "$BASH" --noprofile --norc -i 249>&2 2>/dev/null
      # The environment is too large for exec. The state file has the exported variables.
      export -n $(IFS=$' \n' && compgen -e)
      export __pyexec_state
      PS1= PROMPT_COMMAND=$__pyexec_driver exec "$BASH" --noprofile --norc -i 249>&2 2>/dev/null
    }
    trap __pyexec_exit EXIT
    while IFS= read -r -d '' -u 250 __pyexec_op && [[ $__pyexec_op != start ]]; do :; done
    for __pyexec_op in 1 2 3 4; do IFS= read -r -d '' -u 250 __pyexec_in || builtin exit; done
    __pyexec_hold
    printf '{"op":"ready","version":"%s"}\n' "${BASH_VERSION%%[!0-9.]*}" >&250
  fi
fi
if [[ $__pyexec_busy ]]; then # bash dropped a cell, or a cell has left the loop below by break
  case $__pyexec_busy in
  exit) exec 2>&248 248>&- ;;
  left) __pyexec_code=0 ;;
  *) __pyexec_code=130 ;;
  esac
  __pyexec_last=$__pyexec_code __pyexec_after=$__pyexec_code
fi
# The loop's condition sends the answer, because a cell may call continue.
while
  if [[ $__pyexec_busy ]]; then
    { set +x; } 2>/dev/null
    __pyexec_hold
    __pyexec_last=${__pyexec_after:-0}
    [[ ! $__pyexec_in ]] || exec 249<&-
    # jobs drops failed commands, which bash keeps for a prompt. The user may still ask for jobs that run in the background.
    [[ ${!-} != "$__pyexec_first" ]] || jobs >/dev/null
    __pyexec_busy=
    printf '{"op":"done","n":%d,"code":%d}\n' "$__pyexec_n" "$__pyexec_last" >&250
  fi
  IFS= read -r -d '' -u 250 __pyexec_op && IFS= read -r -d '' -u 250 __pyexec_n && IFS= read -r -d '' -u 250 __pyexec_in &&
    IFS= read -r -d '' -u 250 __pyexec_in && IFS= read -r -d '' -u 250 __pyexec_op
do
  __pyexec_after=
  if [[ $__pyexec_in ]]; then
    exec 249<"$__pyexec_in"
    rm -f -- "$__pyexec_in"
    [[ ${!-} != "$__pyexec_first" ]] || jobs >/dev/null
    printf '{"op":"reading","n":%d}\n' "$__pyexec_n" >&250
  fi
  __pyexec_busy=1 __pyexec_held=
  eval "${__pyexec_trap:-trap - INT}"
  printf '{"op":"begun","n":%d}\n' "$__pyexec_n" >&250 # from here on an interrupt ends the cell
  if [[ $__pyexec_in ]]; then
    __pyexec_status
    eval "$__pyexec_x$__pyexec_op" 247>&- 250>&- 0<&249 249<&-
    {
      __pyexec_after=$?
      case $- in *x*) set +x && __pyexec_x='set -x;' ;; *) __pyexec_x= ;; esac
    } 2>/dev/null
  else
    __pyexec_status
    eval "$__pyexec_x$__pyexec_op" 247>&- 250>&-
    {
      __pyexec_after=$?
      case $- in *x*) set +x && __pyexec_x='set -x;' ;; *) __pyexec_x= ;; esac
    } 2>/dev/null
  fi
done
if [[ $__pyexec_busy ]]; then
  __pyexec_busy=left
  eval "$PROMPT_COMMAND"
fi
trap - EXIT
builtin exit 0
