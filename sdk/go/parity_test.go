package pyexec_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// row is a feature in docs/sdks.md, with its names; "—" is no name.
type row struct{ feature, golang, python string }

func featureTable(t *testing.T) []row {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "sdks.md"))
	if err != nil {
		t.Skipf("SKIPPED: the documentation is not here (a module outside its repository): %v", err)
	}
	_, text, _ := strings.Cut(string(raw), "## Features")
	text, _, _ = strings.Cut(text, "\n## ")
	var rows []row
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || strings.HasPrefix(cells[0], "---") || strings.TrimSpace(cells[1]) == "Go" || strings.TrimSpace(cells[1]) == "" {
			continue
		}
		rows = append(rows, row{strings.TrimSpace(cells[0]), strings.Trim(strings.TrimSpace(cells[1]), "`"), strings.Trim(strings.TrimSpace(cells[2]), "`")})
	}
	if len(rows) < 50 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	return rows
}

// goNames are the exported names of the SDK: functions, types, "Type.Method" and "Type.Field", those of package pack with its name.
func goNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for prefix, dir := range map[string]string{"": ".", "pack.": "pack"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, declared := range parsed.Decls {
				for _, name := range exported(declared) {
					names[prefix+name] = true
				}
			}
		}
	}
	return names
}

func exported(declared ast.Decl) []string {
	switch d := declared.(type) {
	case *ast.FuncDecl:
		if !d.Name.IsExported() {
			return nil
		}
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		of := d.Recv.List[0].Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		if name, ok := of.(*ast.Ident); ok {
			return []string{name.Name + "." + d.Name.Name}
		}
	case *ast.GenDecl:
		var names []string
		for _, spec := range d.Specs {
			s, ok := spec.(*ast.TypeSpec)
			if !ok || !s.Name.IsExported() {
				continue
			}
			names = append(names, s.Name.Name)
			if of, ok := s.Type.(*ast.StructType); ok {
				for _, field := range of.Fields.List {
					for _, name := range field.Names {
						if name.IsExported() {
							names = append(names, s.Name.Name+"."+name.Name)
						}
					}
				}
			}
		}
		return names
	}
	return nil
}

func TestTheTableOfFeaturesNamesWhatGoHas(t *testing.T) {
	t.Parallel()
	names := goNames(t)
	named := map[string]bool{}
	for _, r := range featureTable(t) {
		named[r.golang] = true
		if r.golang != "—" && !names[r.golang] {
			t.Errorf("%s: Go has no %s", r.feature, r.golang)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		feature := strings.HasPrefix(name, "Client.") && name != "Client.String" && name != "Client.Format" || strings.HasPrefix(name, "With") || strings.HasPrefix(name, "NewClient")
		if feature && !named[name] {
			t.Errorf("%s is not in docs/sdks.md", name)
		}
	}
}

// pythonClass is a class of the Python SDK: its members, and the parameters of its methods by "method(name=)".
type pythonClass struct {
	bases   []string
	members map[string]bool
	// options is the TypedDict of the **options of each method.
	options map[string]string
}

var (
	classForm   = regexp.MustCompile(`^class (\w+)(?:\(([^)]*)\))?:`)
	memberForm  = regexp.MustCompile(`^    (?:async )?def (\w+)\(`)
	fieldForm   = regexp.MustCompile(`^    (\w+): `)
	ownForm     = regexp.MustCompile(`^        self\.(\w+)(?:: [^=]+)? = `)
	paramForm   = regexp.MustCompile(`(?:^|[(,\s])(\w+): `)
	optionsForm = regexp.MustCompile(`\*\*\w+: Unpack\[(\w+)\]`)
	publicForm  = regexp.MustCompile(`^    "(\w+)",`)
)

// pythonNames reads the Python SDK as text: the classes, and the names that the package exports.
func pythonNames(t *testing.T, src string) (classes map[string]*pythonClass, public map[string]bool) {
	t.Helper()
	classes, public = map[string]*pythonClass{}, map[string]bool{}
	var files []string
	for _, pattern := range []string{"*.py", "_sync/*.py", "_async/*.py"} {
		found, err := filepath.Glob(filepath.Join(src, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var class *pythonClass
		method, signature := "", false
		for line := range strings.Lines(string(raw)) {
			line = strings.TrimRight(line, "\n")
			if m := publicForm.FindStringSubmatch(line); m != nil && filepath.Base(file) == "__init__.py" {
				public[m[1]] = true
			}
			if m := classForm.FindStringSubmatch(line); m != nil {
				class = &pythonClass{bases: strings.Split(m[2], ","), members: map[string]bool{}, options: map[string]string{}}
				classes[m[1]] = class
			} else if line != "" && line[0] != ' ' && line[0] != ')' && line[0] != '#' {
				class = nil
			}
			if class == nil {
				continue
			}
			if m := memberForm.FindStringSubmatch(line); m != nil {
				method, signature = m[1], true
				class.members[method] = true
			}
			if signature {
				for _, m := range paramForm.FindAllStringSubmatch(line, -1) {
					class.members[method+"("+m[1]+"=)"] = true
				}
				if m := optionsForm.FindStringSubmatch(line); m != nil {
					class.options[method] = m[1]
				}
				signature = !strings.HasSuffix(line, ":")
				continue
			}
			for _, form := range []*regexp.Regexp{fieldForm, ownForm} {
				if m := form.FindStringSubmatch(line); m != nil {
					class.members[m[1]] = true
				}
			}
		}
	}
	return classes, public
}

// hasMember reports whether a class or one of its bases has a member.
func hasMember(classes map[string]*pythonClass, class, member string) bool {
	c := classes[class]
	if c == nil {
		return false
	}
	if c.members[member] {
		return true
	}
	if method, param, ok := strings.Cut(member, "("); ok && hasMember(classes, c.options[method], strings.TrimSuffix(param, "=)")) {
		return true
	}
	return slices.ContainsFunc(c.bases, func(base string) bool { return hasMember(classes, strings.TrimSpace(base), member) })
}

func TestTheTableOfFeaturesNamesWhatPythonHas(t *testing.T) {
	t.Parallel()
	rows := featureTable(t)
	src := filepath.Join("..", "python", "src", "python_executor")
	if _, err := os.Stat(filepath.Join(src, "__init__.py")); err != nil {
		t.Skipf("SKIPPED: the Python SDK is not here: %v", err)
	}
	classes, public := pythonNames(t, src)
	named := map[string]bool{}
	for _, r := range rows {
		named[r.python] = true
		class, member, ok := strings.Cut(r.python, ".")
		if before, after, isInit := strings.Cut(r.python, "("); isInit && !strings.Contains(before, ".") {
			class, member, ok = before, "__init__("+after, true
		}
		if !public[class] || ok && !hasMember(classes, class, member) {
			t.Errorf("%s: Python has no %s", r.feature, r.python)
		}
	}
	for _, class := range []string{"Client", "Session", "EventStream"} {
		if classes[class] == nil {
			t.Fatalf("there is no class %s", class)
		}
		for member := range classes[class].members {
			// An attribute and a property tell what the object is; a method does something.
			state := slices.Contains([]string{"server", "info", "session_id"}, member)
			if !strings.HasPrefix(member, "_") && !strings.Contains(member, "(") && !state && !named[class+"."+member] {
				t.Errorf("%s.%s is not in docs/sdks.md", class, member)
			}
		}
		for member := range classes["Async"+class].members {
			if member != "aclose" && !strings.HasPrefix(member, "_") && !hasMember(classes, class, member) {
				t.Errorf("only Async%s has %s", class, member)
			}
		}
	}
}
