# check.awk KERNELS RESULTS: what KERNELS (kernels.txt) forbids of RESULTS, lines of
#   target row kernel registers spilled scratch local matrix problem
function listed(list, kernel) { return index("," list ",", "," kernel ",") > 0 }
# The bytes that a kernel of a list like "a,b:80" may spill; -1 when it is not in the list.
function allowed(list, kernel,    i, n, item, part) {
	n = split(list, item, ",")
	for (i = 1; i <= n; i++) {
		split(item[i], part, ":")
		if (part[1] == kernel) return part[2] + 0
	}
	return -1
}
FNR == 1 { file++ }
/^#/ || NF == 0 { next }
file == 1 { hot[$1] = $2; matrix[$1] = $3; large[$1] = $4; next }
{
	most = listed(large[$2], $3) ? 231424 : $1 ~ /^sm_/ ? 49152 : 32768
	where = $2 " " $3 " on " $1 ": "
	if ($7 != "-" && $7 > most) print where $7 " bytes of local memory, at most " most " are allowed"
	spill = allowed(hot[$2], $3)
	if ($5 != "-" && spill >= 0 && $5 > spill) print where "spills " $5 " bytes of registers, " spill " are allowed"
	if ($8 > 0) has[$1, $2, $9, $3] = 1
	programs[$1, $2, $9] = matrix[$2]
}
END {
	for (program in programs) {
		split(program, part, SUBSEP)
		n = programs[program] == "-" ? 0 : split(programs[program], wanted, ",")
		for (i = 1; i <= n; i++) {
			found = 0
			count = split(wanted[i], any, "|")
			for (j = 1; j <= count; j++) found += (program, any[j]) in has
			if (!found) print part[2] " " wanted[i] " on " part[1] ": no matrix instruction, for " part[3]
		}
	}
}
