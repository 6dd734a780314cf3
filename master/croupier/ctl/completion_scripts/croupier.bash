_croupier_add() { if [[ $1 == "$current"* ]]; then COMPREPLY+=("$1"); fi; }
_croupier() {
  local current=${COMP_WORDS[COMP_CWORD]} is_files='' line
  local -a before
  before=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
  # Bash splits --flag=value into three words.
  if [[ $current == '=' ]]; then
    current=''
  elif [[ ${#before[@]} -gt 0 && ${before[${#before[@]}-1]} == '=' ]]; then
    unset "before[${#before[@]}-1]"
  fi
  COMPREPLY=()
  # WALK
  if [[ -n $is_over ]]; then compopt -o default 2>/dev/null; return; fi
  # CHOOSE
  if [[ -n $is_files ]]; then compopt -o default 2>/dev/null; fi
}
complete -F _croupier croupier
