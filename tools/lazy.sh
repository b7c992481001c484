#!/usr/bin/env bash
# Makes bin/lazy/go.work, with which make build builds. github.com/santhosh-tekuri/jsonschema, which checks the arguments of MCP tools, compiles
# its own schemas when a process starts: 10 ms of each command and of each plugin. The copy that is made here compiles them before the
# first other schema. A binary that is built without it does the same, and starts later.
set -euo pipefail
cd "$(dirname "$0")/.."
library=github.com/santhosh-tekuri/jsonschema/v6
(cd cli && go mod download "$library")
from=$(cd cli && go list -m -f '{{.Dir}}' "$library")
mkdir -p bin
to=$(mktemp -d bin/lazy.XXXXXX)
trap 'rm -rf "$to"' EXIT
mkdir "$to/jsonschema"
cp -r "$from"/{*.go,go.mod,go.sum,LICENSE,metaschemas,kind} "$to/jsonschema"
chmod -R u+w "$to/jsonschema"
rm "$to"/jsonschema/*_test.go
change() { # change FILE EXPRESSION: it must apply
  sed -i.before "$2" "$to/jsonschema/$1"
  ! cmp -s "$to/jsonschema/$1" "$to/jsonschema/$1.before" || { echo "lazy.sh: $2 changes nothing in $1 of $library" >&2; exit 1; }
  rm "$to/jsonschema/$1.before"
}
change draft.go 's/^func init() {$/func compileDrafts() {/'
change draft.go 's/^\tc := NewCompiler()$/\tc := newCompiler()/'
change compiler.go 's/^func NewCompiler() /func newCompiler() /'
cat >"$to/jsonschema/lazy.go" <<'GO'
package jsonschema

import "sync"

var drafts sync.Once

// NewCompiler returns a Compiler. The first call compiles the drafts.
func NewCompiler() *Compiler {
	drafts.Do(compileDrafts)
	return newCompiler()
}
GO
sed 's|\./|../../|' go.work >"$to/go.work"
printf '\nreplace %s => ./jsonschema\n' "$library" >>"$to/go.work"
cp go.work.sum "$to"
# Go builds again what is newer, so that what has not changed stays.
diff -rq "$to" bin/lazy >/dev/null 2>&1 || { rm -rf bin/lazy && mv "$to" bin/lazy; }
