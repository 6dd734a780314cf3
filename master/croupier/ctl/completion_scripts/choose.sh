  # Sets `wanted`, the values at the cursor, and adds commands and flags by _croupier_add.
  local wanted='' seen=0
  while IFS= read -r line; do
    kind=${line%%$'\t'*}; text=${line#*$'\t'}
    name=${text%%$'\t'*}; text=${text#*$'\t'}
    values=${text%%$'\t'*}; text=${text#*$'\t'}
    if [[ -n $pending ]]; then
      if [[ $name == "$pending" ]]; then wanted=$values; fi
    elif [[ $kind == f ]]; then
      if [[ $current == -* ]]; then _croupier_add "$name" "$text"; fi
    elif [[ $kind == c ]]; then
      if [[ $at -eq 0 && $current != -* ]]; then _croupier_add "$name" "$text"; fi
    elif [[ $current != -* ]]; then
      if [[ $seen -eq $at ]]; then wanted=$values; fi
      seen=$((seen + 1))
    fi
  done < <(_croupier_words "$command")
  if [[ -n $pending && " CONNECTION " == *" $pending "* && -z $wanted ]]; then wanted='-'; fi
  case "$wanted" in
  '' | -) ;;
  @files) is_files=1;;
  @*)
    while IFS=$'\t' read -r name text; do _croupier_add "$name" "$text"; done < <(
      croupier complete "${wanted#@}" "$current" "${connection[@]}" 2>/dev/null
    );;
  *) while IFS= read -r name; do _croupier_add "$name" ''; done < <(
      printf '%s\n' "$wanted" | tr ' ' '\n'
    );;
  esac
