# Completion of postrider for bash 4.4 or newer. The program itself knows what can follow: `postrider completion words`.

_postrider() {
    local line=${COMP_LINE:0:COMP_POINT} words=() word reply nospace=true i

    # Bash has split words at = and :. What had no blank before it belongs to the word before.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((i > 0)) && [[ -n $line && $line != [[:space:]]* ]]; then
            words[-1]+=$word
        else
            line=${line#"${line%%[![:space:]]*}"}
            words+=("$word")
        fi
        ((i < COMP_CWORD)) || words[-1]=${words[-1]%"$word"}$line # up to the cursor
        line=${line#"$word"}
    done
    word=${words[-1]}

    COMPREPLY=()
    while IFS=$'\t' read -r reply _; do
        if [[ $reply == :files ]]; then
            compopt -o default
            return
        fi
        [[ $reply == *[=.] ]] || nospace=false
        # Bash puts in place of what stands behind the last =.
        [[ $COMP_WORDBREAKS != *=* ]] || reply=${reply#"${word%"${word##*=}"}"}
        COMPREPLY+=("$reply")
    done < <("${words[0]/#\~\//$HOME/}" completion words -- "${words[@]:1}" 2>/dev/null)
    if $nospace; then
        compopt -o nospace
    fi
}

complete -F _postrider postrider
