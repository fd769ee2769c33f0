#compdef postrider
# Completion of postrider for zsh. The program itself knows what can follow: `postrider completion words`.

_postrider() {
    local reply word entry
    local -a closed open

    while IFS= read -r reply; do
        if [[ $reply == :files ]]; then
            compset -P '--[^=]##='
            _files
            return
        fi
        # _describe wants word:explanation, and a \ before a colon of the word.
        word=${reply%%$'\t'*}
        entry=${word//:/\\:}
        [[ $reply != *$'\t'* ]] || entry+=:${reply#*$'\t'}
        if [[ $word == *[=.] ]]; then
            open+=("$entry")
        else
            closed+=("$entry")
        fi
    done < <("${words[1]/#\~\//$HOME/}" completion words -- "${(@)words[2,CURRENT - 1]}" "$PREFIX" 2>/dev/null)

    local found=1
    (($#closed)) && _describe postrider closed && found=0
    (($#open)) && _describe postrider open -S '' && found=0
    return found
}

# Sourced it makes itself known; from a folder of $fpath it is called.
if [[ $funcstack[1] == _postrider ]]; then
    _postrider "$@"
else
    compdef _postrider postrider
fi
