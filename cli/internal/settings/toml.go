package settings

import (
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/python-executor/python-executor/core/executor"
)

// readTOML reads a TOML file. The error names the line of what is wrong. Dates become texts.
func readTOML(raw []byte, _ *executor.Problems) (map[string]any, error) {
	var values map[string]any
	if err := toml.Unmarshal(raw, &values); err != nil {
		if at, ok := err.(*toml.DecodeError); ok { //nolint:errorlint // as documented
			line, _ := at.Position()
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		return nil, err
	}
	return values, nil
}

// linesOfTOML fills the lines of keys and tables. The parser's interface may change with the library: a test holds the lines.
func linesOfTOML(raw []byte, lines map[string]int) {
	var p unstable.Parser
	p.Reset(raw)
	entries := map[string]int{} // of arrays of tables, by the path without indexes
	table := ""
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind == unstable.KeyValue {
			valueLines(&p, e, table, lines)
			continue
		}
		names, line := keyOf(&p, e.Key())
		if e.Kind == unstable.ArrayTable {
			entries[strings.Join(names, ".")]++
		}
		table = ""
		for i, name := range names {
			table = lineKey(table, name)
			setLine(lines, table, line)
			if n := entries[strings.Join(names[:i+1], ".")]; n > 0 {
				table += fmt.Sprintf("[%d]", n-1)
			}
			setLine(lines, table, line)
		}
	}
}

func setLine(lines map[string]int, path string, line int) {
	if lines[path] == 0 {
		lines[path] = line
	}
}

// valueLines fills the lines of a key and of what is below it.
func valueLines(p *unstable.Parser, e *unstable.Node, at string, lines map[string]int) {
	names, line := keyOf(p, e.Key())
	for _, name := range names {
		at = lineKey(at, name)
		setLine(lines, at, line)
	}
	linesBelow(p, e.Value(), at, lines)
}

// linesBelow fills the lines of the entries of an inline table or of an array.
func linesBelow(p *unstable.Parser, value *unstable.Node, at string, lines map[string]int) {
	switch value.Kind {
	case unstable.InlineTable:
		for c := value.Children(); c.Next(); {
			valueLines(p, c.Node(), at, lines)
		}
	case unstable.Array:
		i := 0
		for c := value.Children(); c.Next(); i++ {
			entry, raw := fmt.Sprintf("%s[%d]", at, i), c.Node().Raw
			if raw.Length == 0 && len(c.Node().Data) > 0 { // a truth value, or a date
				raw = p.Range(c.Node().Data)
			}
			if raw.Length > 0 { // an array has no place
				setLine(lines, entry, p.Shape(raw).Start.Line)
			}
			linesBelow(p, c.Node(), entry, lines)
		}
	default:
	}
}

// keyOf returns the names of a dotted key and its line.
func keyOf(p *unstable.Parser, key unstable.Iterator) (names []string, line int) {
	for key.Next() {
		if line == 0 {
			line = p.Shape(key.Node().Raw).Start.Line
		}
		names = append(names, string(key.Node().Data))
	}
	return names, line
}
