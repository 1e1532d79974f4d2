# reqntid.awk LLVM-IR PTX: the PTX with .reqntid behind each kernel's parameters, from its reqd_work_group_size.
FNR == NR {
	if (/^define / && match($0, /@[A-Za-z_0-9]+\(/)) {
		name = substr($0, RSTART + 1, RLENGTH - 2)
		if (match($0, /!reqd_work_group_size ![0-9]+/)) node[name] = substr($0, RSTART + 22, RLENGTH - 22)
	}
	if (/^![0-9]+ = !\{i32 [0-9]+, i32 [0-9]+, i32 [0-9]+\}$/) {
		gsub(/[{},]/, "")
		size[$1] = $4 ", " $6 ", " $8
	}
	next
}
{ print }
/^(\.visible )?\.entry / { name = $0; sub(/^.*\.entry /, "", name); sub(/\(.*/, "", name); open = 1 }
open && /^\)[ \t]*(\/\/.*)?$/ {
	open = 0
	if (name in node) print ".reqntid " size[node[name]]
}
