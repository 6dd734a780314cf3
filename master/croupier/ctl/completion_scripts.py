"""The scripts that complete `croupier`: a table of words, and how each shell uses it.

Rule: a script starts `croupier` only for ids, and evaluates nothing that `croupier` prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from croupier.cli.flags import CONNECTION_FLAGS

SHELLS: Final = ("bash", "zsh", "fish")


def script(shell: str, table: Mapping[str, Sequence[str]]) -> str:
    """Return the script of a shell for the words of `commands.completion.table`."""
    flags = " ".join(CONNECTION_FLAGS)
    if shell == "fish":
        return "\n".join(_fish_table(table)) + _FISH.replace("CONNECTION", flags)
    body = "\n".join(_posix_table(table))
    if shell == "zsh":
        # The first line lets zsh find it in fpath.
        return "#compdef croupier\n" + body + _ZSH.replace("CONNECTION", flags)
    return body + _BASH.replace("CONNECTION", flags)


def _posix_table(table: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield "# Completion of croupier; made by `croupier completion`."
    yield "_croupier_words() {"
    yield '  case "$1" in'
    for path, lines in table.items():
        yield f"  '{path}') printf '%s\\n' {' '.join(map(_quoted, lines))};;"
    yield "  *) return 1;;"
    yield "  esac"
    yield "}"
    yield ""


def _fish_table(table: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield "# Completion of croupier; made by `croupier completion`."
    yield "function __croupier_words"
    yield '  switch "$argv[1]"'
    for path, lines in table.items():
        yield f"  case '{path}'"
        yield f"    printf '%s\\n' {' '.join(map(_quoted, lines))}"
    yield "  case '*'"
    yield "    return 1"
    yield "  end"
    yield "end"
    yield ""


def _quoted(line: str) -> str:
    assert "'" not in line
    assert "\\" not in line
    return f"'{line}'"


# Reads the words before the cursor. Sets `command`, the number `at` of positional arguments, the
# flag `pending` that waits for its value, the `connection` flags, and `is_over` after `--`.
_WALK: Final = """\
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
        name=${line#*$'\\t'}; values=${name#*$'\\t'}; name=${name%%$'\\t'*}
        values=${values%%$'\\t'*}
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
"""
# Sets `wanted`, the values at the cursor, and adds commands and flags by _croupier_add.
_CHOOSE: Final = """\
  local wanted='' seen=0
  while IFS= read -r line; do
    kind=${line%%$'\\t'*}; text=${line#*$'\\t'}
    name=${text%%$'\\t'*}; text=${text#*$'\\t'}
    values=${text%%$'\\t'*}; text=${text#*$'\\t'}
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
    while IFS=$'\\t' read -r name text; do _croupier_add "$name" "$text"; done < <(
      croupier complete "${wanted#@}" "$current" "${connection[@]}" 2>/dev/null
    );;
  *) while IFS= read -r name; do _croupier_add "$name" ''; done < <(
      printf '%s\\n' "$wanted" | tr ' ' '\\n'
    );;
  esac
"""
_BASH: Final = (
    """
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
"""
    + _WALK
    + """\
  if [[ -n $is_over ]]; then compopt -o default 2>/dev/null; return; fi
"""
    + _CHOOSE
    + """\
  if [[ -n $is_files ]]; then compopt -o default 2>/dev/null; fi
}
complete -F _croupier croupier
"""
)
_ZSH: Final = (
    """
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
"""
    + _WALK
    + """\
  if [[ -n $is_over ]]; then _files; return; fi
"""
    + _CHOOSE
    + """\
  if [[ -n $is_files ]]; then _files; return; fi
  compadd -l -d shown -- "${found[@]}"
}
if [[ ${funcstack[1]} == _croupier ]]; then _croupier "$@"; else compdef _croupier croupier; fi
"""
)
_FISH: Final = """
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
          set -l parts (string split \\t -- $line)
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
    set -l parts (string split \\t -- $line)
    if test -n "$pending"
      if test "$parts[2]" = "$pending"
        set wanted $parts[3]
      end
    else if test "$parts[1]" = f
      if string match -q -- '-*' $current
        printf '%s\\t%s\\n' $parts[2] $parts[4]
      end
    else if test "$parts[1]" = c
      if test $at -eq 0
        printf '%s\\t%s\\n' $parts[2] $parts[4]
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
      for line in (command croupier complete (string sub -s 2 -- $wanted) "$current" \\
          $connection 2>/dev/null)
        printf '%s%s\\n' $lead $line
      end
    case '*'
      for word in (string split ' ' -- $wanted)
        printf '%s%s\\n' $lead $word
      end
  end
end
complete -c croupier -f -a '(__croupier_complete)'
"""
