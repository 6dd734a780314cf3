_croupier_add() {
  if [[ $1 == "$current"* ]]; then
    found+=("$1")
    shown+=("$1${2:+  -- $2}")
  fi
}
_croupier() {
  local current=$words[CURRENT] prefix='' is_files='' line
  local -a before found shown
  before=("${(@)words[2,CURRENT-1]}")
  # The value of --flag=value.
  if [[ $current == --*=* ]]; then
    before+=("${current%%=*}")
    current=${current#*=}
    compset -P '*='
  fi
  # WALK
  if [[ -n $is_over ]]; then _files; return; fi
  # CHOOSE
  if [[ -n $is_files ]]; then _files; return; fi
  compadd -l -d shown -- "${found[@]}"
}
if [[ ${funcstack[1]} == _croupier ]]; then _croupier "$@"; else compdef _croupier croupier; fi
