function __croupier_complete
  set -l command ''
  set -l pending ''
  set -l at 0
  set -l connection
  set -l current (commandline -ct)
  set -l before (commandline -opc)
  set -e before[1]
  for word in $before
    if test -n "$pending"
      if contains -- $pending CONNECTION
        set -a connection $pending $word
      end
      set pending ''
      continue
    end
    switch $word
      case '--'
        __fish_complete_path $current
        return
      case '--*=*'
        set -l flag (string split -m 1 = -- $word)[1]
        if contains -- $flag CONNECTION
          set -a connection $word
        end
      case '-*'
        if contains -- $word CONNECTION
          set pending $word
          continue
        end
        for line in (__croupier_words $command)
          set -l parts (string split \t -- $line)
          if test "$parts[2]" = "$word" -a -n "$parts[3]"
            set pending $word
          end
        end
      case '*'
        set -l longer (string trim -- "$command $word")
        if test $at -eq 0; and __croupier_words $longer >/dev/null
          set command $longer
        else
          set at (math $at + 1)
        end
    end
  end
  set -l lead ''
  if string match -q -- '--*=*' $current
    set pending (string split -m 1 = -- $current)[1]
    set lead "$pending="
    set current (string split -m 1 = -- $current)[2]
  end
  set -l wanted ''
  set -l seen 0
  for line in (__croupier_words $command)
    set -l parts (string split \t -- $line)
    if test -n "$pending"
      if test "$parts[2]" = "$pending"
        set wanted $parts[3]
      end
    else if test "$parts[1]" = f
      if string match -q -- '-*' $current
        printf '%s\t%s\n' $parts[2] $parts[4]
      end
    else if test "$parts[1]" = c
      if test $at -eq 0
        printf '%s\t%s\n' $parts[2] $parts[4]
      end
    else
      if test $seen -eq $at
        set wanted $parts[3]
      end
      set seen (math $seen + 1)
    end
  end
  switch $wanted
    case '' '-'
    case '@files'
      __fish_complete_path $current
    case '@*'
      for line in (command croupier complete (string sub -s 2 -- $wanted) "$current" \
          $connection 2>/dev/null)
        printf '%s%s\n' $lead $line
      end
    case '*'
      for word in (string split ' ' -- $wanted)
        printf '%s%s\n' $lead $word
      end
  end
end
complete -c croupier -f -a '(__croupier_complete)'
