# nvidia.awk MATRIX INFO: kernels' figures from what ptxas -v says.
FNR == NR { matrix[$1] = $2; next }
/Compiling entry function/ { split($0, part, "'"); name = part[2]; order[++n] = name; smem[name] = 0 }
/bytes stack frame/ { stack[name] = $1; spills[name] = $5 }
/Used [0-9]+ registers/ {
	for (i = 1; i < NF; i++) {
		if ($(i + 1) ~ /^registers/) registers[name] = $i
		if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) smem[name] = $i
	}
}
END { for (i = 1; i <= n; i++) print order[i], registers[order[i]], spills[order[i]] + 0, stack[order[i]] + 0, smem[order[i]], matrix[order[i]] + 0 }
