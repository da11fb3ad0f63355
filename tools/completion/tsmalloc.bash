# Completion of tsmalloc for bash: verbs, their options, and after `--` whatever the program takes.
# The words are those of --help, so that they fit the version that is installed.

_tsmalloc() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} at help verbs choices
  local -a command=("${COMP_WORDS[0]/#\~/$HOME}")
  COMPREPLY=()
  for ((at = 1; at < COMP_CWORD; ++at)); do
    [[ ${COMP_WORDS[at]} == -- ]] || continue
    if declare -F _command_offset > /dev/null; then # of the package bash-completion
      _command_offset $((at + 1))
    elif ((at + 1 == COMP_CWORD)); then
      mapfile -t COMPREPLY < <(compgen -c -- "$word")
    fi
    return
  done
  for ((at = 1; at < COMP_CWORD && at < 3; ++at)); do
    [[ ${COMP_WORDS[at]} == [a-z]* ]] && command+=("${COMP_WORDS[at]}") || break
  done
  help=$("${command[@]}" --help 2> /dev/null < /dev/null) ||
    help=$("${command[@]:0:2}" --help 2> /dev/null < /dev/null)
  verbs=$(sed -n 's/^  \([a-z]\{2,\}\)\(  .*\| [A-Z][a-z].*\)\{0,1\}$/\1/p' <<< "$help")
  [[ $previous == --* ]] && choices=$(sed -n "s/^ .*$previous \[\([a-z|-]*\)\].*/\1/p" <<< "$help")
  if [[ -n $choices ]]; then
    mapfile -t COMPREPLY < <(compgen -W "${choices//|/ }" -- "$word")
  elif [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(grep -oE -- '--[a-z][a-z-]+' <<< "$help" | sort -u)" -- "$word")
  elif ((${#command[@]} == COMP_CWORD)) && ! grep -qx -- "${command[-1]}" <<< "$verbs"; then
    mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$word")
  fi
}
complete -o bashdefault -o default -F _tsmalloc tsmalloc
