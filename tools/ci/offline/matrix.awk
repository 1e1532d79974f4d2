# Functions of a disassembly, or PTX text, and how many lines of each match `pattern`.
/^[0-9a-f]+ <[^>]+>:$/ { name = substr($2, 2, length($2) - 3) }
/^(\.visible )?\.entry / { name = $0; sub(/^.*\.entry /, "", name); sub(/\(.*/, "", name) }
/^[A-Za-z_][A-Za-z_0-9]*:$/ && !/^L[0-9]/ { name = substr($0, 1, length($0) - 1) }
name != "" { count[name] += $0 ~ pattern }
END { for (name in count) print name, count[name] }
