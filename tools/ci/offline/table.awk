# table.awk keep="TARGETS" OLD RESULTS: the table of resources.txt, without its head. The columns of targets in `keep` are taken from
# OLD as they are; all others come from RESULTS, lines of
#   target row kernel registers spilled scratch local matrix
# Of a kernel that is built with several sets of options the largest figures count (of Intel's widths the smallest).
function worse(new, old,    n, o) {
	if (old == "") return new
	if (new ~ /^s/) {
		n = substr(new, 2) + 0; o = substr(old, 2) + 0
		return n < o ? new : old
	}
	return new + 0 > old + 0 ? new : old
}
function cell(id, target,    k) {
	k = id SUBSEP target
	if (index(" " keep " ", " " target " ")) return k in was ? was[k] : "?"
	return (k, 4) in figure ? figure[k, 4] "/" figure[k, 5] "/" figure[k, 6] "/" figure[k, 7] : "-"
}
BEGIN { count = split("gfx90a gfx942 gfx1100 gfx1201 sm_75 sm_80 sm_89 sm_90 tgllp dg2 pvc", targets) }
FNR == 1 { file++ }
/^#/ || NF == 0 { next }
file == 1 {
	for (i = 1; i <= count; i++) was[$1, $2, targets[i]] = $(i + 2)
	next
}
$1 ~ /^(gpu|cpu)/ { next }
{
	id = $2 SUBSEP $3
	if (!(id in seen)) { seen[id] = 1; order[++n] = id }
	for (i = 4; i <= 7; i++) figure[id, $1, i] = worse($i, figure[id, $1, i])
}
END {
	line = sprintf("%-30s %-20s", "# row", "kernel")
	for (i = 1; i <= count; i++) line = line sprintf(" %-18s", targets[i])
	sub(/ +$/, "", line); print line
	for (j = 1; j <= n; j++) {
		split(order[j], part, SUBSEP)
		line = sprintf("%-30s %-20s", part[1], part[2])
		for (i = 1; i <= count; i++) line = line sprintf(" %-18s", cell(order[j], targets[i]))
		sub(/ +$/, "", line); print line
	}
}
