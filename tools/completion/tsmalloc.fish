# Completion of tsmalloc for fish: verbs, their options, and after `--` whatever the program takes.
# The words are those of --help, so that they fit the version that is installed.

function __tsmalloc_words
    set -l words (commandline -opc)
    set -l command $words[1]
    for word in $words[2..-1]
        string match -qr '^[a-z]' -- $word; and test (count $command) -lt 3; or break
        set -a command $word
    end
    set -l help ($command --help 2>/dev/null </dev/null)
    or set help ($command[1..2] --help 2>/dev/null </dev/null)
    set -l choices
    string match -q -- '--*' $words[-1]
    and set choices (string match -rg -- "^ .*$words[-1] \[([a-z|-]*)\]" $help)
    if test -n "$choices"
        string split '|' -- $choices
    else if string match -q -- '-*' (commandline -ct)
        string match -rag -- '(--[a-z][a-z-]+)' $help | sort -u
    else if test (count $command) -eq (count $words)
        set -l verbs (string match -rg '^  ([a-z]{2,})(?:  .*| [A-Z][a-z].*)?$' -- $help)
        contains -- $command[-1] $verbs; or printf '%s\n' $verbs
    end
end

complete -c tsmalloc -f -n 'test (count (commandline -opc)) -eq 1'
complete -c tsmalloc -n 'not contains -- -- (commandline -opc)' -a '(__tsmalloc_words)'
complete -c tsmalloc -x -n 'contains -- -- (commandline -opc)' \
    -a '(__fish_complete_subcommand --fcs-skip=(contains -i -- -- (commandline -opc)))'
