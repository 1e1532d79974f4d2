# amd.awk MATRIX REMARKS: kernels' figures from clang's remarks.
FNR == NR { matrix[$1] = $2; next }
/remark: / {
	sub(/ \[-Rpass-analysis.*/, "")
	value = $NF
	if (/Function Name:/) { name = value; order[++n] = name }
	else if (/ VGPRs: /) registers[name] = value
	else if (/ AGPRs: /) registers[name] += value
	else if (/ ScratchSize /) scratch[name] = value
	else if (/ VGPRs Spill:/) spills[name] = 4 * value
	else if (/ LDS Size /) lds[name] = value
}
END { for (i = 1; i <= n; i++) print order[i], registers[order[i]], spills[order[i]], scratch[order[i]], lds[order[i]], matrix[order[i]] + 0 }
