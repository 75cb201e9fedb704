# Completes commands and flags of PROGRAM. Where it names none, bash completes files.
# What is typed reaches it as it is: nothing in it is expanded or run.
__braid_bash_autocomplete() {
  local cur=${COMP_WORDS[COMP_CWORD]} cword=$COMP_CWORD words=("${COMP_WORDS[@]}")
  # The package bash-completion puts words together again that bash splits at = and :.
  if declare -F _get_comp_words_by_ref >/dev/null; then
    _get_comp_words_by_ref -n "=:" cur words cword
  fi
  COMPREPLY=()
  local request=("${words[@]:0:cword}") line token
  request[0]=${request[0]/#~\//$HOME/}
  [[ $cur != -* ]] || request+=("$cur")
  while IFS= read -r line; do # name:description
    token=${line%%:*}
    [[ -n $token && $token == "$cur"* ]] || continue
    # 63: the tab key was pressed twice, for a list.
    if [[ ${COMP_TYPE-} == 63 && $line == *:* ]]; then
      printf -v token '%-24s -- %s' "$token" "${line#*:}"
    fi
    COMPREPLY+=("$token")
  done < <("${request[@]}" --generate-shell-completion 2>/dev/null </dev/null)
}
complete -o bashdefault -o default -F __braid_bash_autocomplete PROGRAM
