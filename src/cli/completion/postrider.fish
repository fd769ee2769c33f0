# Completion of postrider for fish. The program itself knows what can follow: `postrider completion words`.

function __postrider_words
    set -l before (commandline -opc)
    set -l word (commandline -ct)
    set -l program (string replace -r '^~/' "$HOME/" -- $before[1])
    set -l replies ($program completion words -- $before[2..-1] "$word" 2>/dev/null)

    if test "$replies" = :files
        set -l lead (string match -r -- '^--[^=]+=' $word)
        for path in (__fish_complete_path (string replace -- "$lead" '' $word))
            printf '%s%s\n' "$lead" $path
        end
    else if set -q replies[1]
        printf '%s\n' $replies
    end
end

complete -c postrider -f -a '(__postrider_words)'
