# SPDX-License-Identifier: MIT
#
# What the scripts here share: a folder of their own, commands with their status, and TAP.

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0
failed=0

result() { # STATUS NAME
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		tail -n 40 "$tmp/out" "$tmp/err" | sed 's/^/# /'
		failed=1
	fi
}

skip() { # NAME WHY
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

# run STATUS COMMAND...: leaves $tmp/out and $tmp/err.
run() {
	wanted=$1
	shift
	"$@" >"$tmp/out" 2>"$tmp/err" </dev/null
	got=$?
	[ $got = "$wanted" ] && return 0
	echo "# exit status $got instead of $wanted: $*"
	return 1
}

# noticed DEFECT PROGRAM: with the defect a seed fails, or crashes as a defect may, and is named.
noticed() {
	env GANNET_MUTANT="$1" "$2" --only-seeds 200 >"$tmp/out" 2>"$tmp/err" </dev/null
	got=$?
	grep -q '^# replay: ' "$tmp/out" && [ $got = 1 -o $got = 139 ] && return 0
	echo "# exit status $got instead of 1 (a seed failed) or 139 (it crashed): $1"
	return 1
}

finish() {
	echo "1..$n"
	exit $failed
}
