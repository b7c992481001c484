#!/usr/bin/env bash
# Makes bin/lazy/go.work, with which make build builds. Two libraries compile expressions and schemas when a process starts: 10 ms of each
# command and of each plugin for github.com/santhosh-tekuri/jsonschema, which checks the arguments of MCP tools, and 1 ms for
# github.com/distribution/reference, which parses names of images. The copies that are made here do it at the first use. The copy of
# github.com/hashicorp/go-plugin lacks the reflection of gRPC, which costs 1 ms. A binary that is built without the copies starts later.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin
to=$(mktemp -d bin/lazy.XXXXXX)
trap 'rm -rf "$to"' EXIT
sed 's|\./|../../|' go.work >"$to/go.work"
cp go.work.sum "$to"
copy() { # copy LIBRARY NAME FILE…: to/NAME has the files of the library, and replaces it
  local library=$1 name=$2 from
  shift 2
  (cd cli && go mod download "$library")
  from=$(cd cli && go list -m -f '{{.Dir}}' "$library")
  mkdir "$to/$name"
  (cd "$from" && cp -r ./*.go go.mod go.sum LICENSE "$@" "$OLDPWD/$to/$name")
  chmod -R u+w "$to/$name"
  rm "$to/$name"/*_test.go
  printf '\nreplace %s => ./%s\n' "$library" "$name" >>"$to/go.work"
}
change() { # change FILE EXPRESSION: it must apply
  sed -i.before "$2" "$to/$1"
  ! cmp -s "$to/$1" "$to/$1.before" || { echo "lazy.sh: $2 changes nothing in $1" >&2; exit 1; }
  rm "$to/$1.before"
}

copy github.com/santhosh-tekuri/jsonschema/v6 jsonschema metaschemas kind
change jsonschema/draft.go 's/^func init() {$/func compileDrafts() {/'
change jsonschema/draft.go 's/^\tc := NewCompiler()$/\tc := newCompiler()/'
change jsonschema/compiler.go 's/^func NewCompiler() /func newCompiler() /'
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

copy github.com/distribution/reference reference
change reference/regexp.go '/^\t"regexp"$/d'
change reference/regexp.go 's/= regexp\.MustCompile(\(.*\))$/= \&expression{text: \1}/'
cat >"$to/reference/lazy.go" <<'GO'
package reference

import (
	"regexp"
	"sync"
)

// expression is a regular expression that its first use compiles.
type expression struct {
	text  string
	once  sync.Once
	value *regexp.Regexp
}

func (e *expression) compiled() *regexp.Regexp {
	e.once.Do(func() { e.value = regexp.MustCompile(e.text) })
	return e.value
}

func (e *expression) MatchString(s string) bool { return e.compiled().MatchString(s) }

func (e *expression) FindStringSubmatch(s string) []string { return e.compiled().FindStringSubmatch(s) }
GO
# Nobody asks a plugin for the descriptors of its services.
copy github.com/hashicorp/go-plugin goplugin internal runner
change goplugin/grpc_server.go '/^\t"google.golang.org\/grpc\/reflection"$/d'
change goplugin/grpc_server.go '/^\treflection\.Register(s\.server)$/d'

# Go builds again what is newer, so that what has not changed stays.
diff -rq "$to" bin/lazy >/dev/null 2>&1 || { rm -rf bin/lazy && mv "$to" bin/lazy; }
