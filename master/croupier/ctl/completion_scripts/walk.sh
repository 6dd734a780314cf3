  # Reads the words before the cursor. Sets `command`, the number `at` of positional arguments, the
  # flag `pending` that waits for its value, the `connection` flags, and `is_over` after `--`.
  local command='' pending='' is_over='' at=0 word kind name values text
  local -a connection
  connection=()
  for word in "${before[@]}"; do
    if [[ -n $is_over ]]; then continue; fi
    if [[ -n $pending ]]; then
      if [[ " CONNECTION " == *" $pending "* ]]; then connection+=("$pending" "$word"); fi
      pending=''
      continue
    fi
    case "$word" in
    --) is_over=1;;
    --*=*) if [[ " CONNECTION " == *" ${word%%=*} "* ]]; then connection+=("$word"); fi;;
    -*)
      if [[ " CONNECTION " == *" $word "* ]]; then pending=$word; continue; fi
      while IFS= read -r line; do
        name=${line#*$'\t'}; values=${name#*$'\t'}; name=${name%%$'\t'*}
        values=${values%%$'\t'*}
        if [[ $name == "$word" && -n $values ]]; then pending=$word; fi
      done < <(_croupier_words "$command");;
    *)
      if [[ $at -eq 0 ]] && _croupier_words "${command:+$command }$word" >/dev/null; then
        command="${command:+$command }$word"
      else
        at=$((at + 1))
      fi;;
    esac
  done
