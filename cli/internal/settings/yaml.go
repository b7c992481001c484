package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/python-executor/python-executor/core/executor"
)

// readYAML reads a file of one YAML or JSON document. Keys stay as they are written: 3.12 is "3.12".
func readYAML(raw []byte, problems *executor.Problems) (map[string]any, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	var doc, more yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil && bytes.Contains(raw, []byte("\t")):
		return nil, fmt.Errorf("%w (YAML is indented by spaces, not by tabs)", err)
	case err != nil:
		return nil, err
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("must hold one document")
	}
	r := nodeReader{}
	value := r.value("", doc.Content[0], 0)
	*problems = append(*problems, r.problems...)
	section, ok := value.(map[string]any)
	if !ok && value != nil {
		return nil, fmt.Errorf("must be a section (got %s)", shown(value))
	}
	return section, nil
}

// jsonError returns the syntax error of a JSON file with its line; err if the syntax is that of JSON.
func jsonError(raw []byte, err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(raw, new(any))); ok {
		return fmt.Errorf("line %d: %w", 1+bytes.Count(raw[:max(0, syntax.Offset-1)], []byte("\n")), syntax)
	}
	return err
}

// maxNodes bounds the size of a file whose aliases are expanded.
const maxNodes = 100_000

// nodeReader converts the nodes of a document to values as encoding/json has them. A duplicate key is a problem, and only its first
// value counts.
type nodeReader struct {
	nodes    int
	problems executor.Problems
}

func (r *nodeReader) value(at string, node *yaml.Node, depth int) any {
	for node.Kind == yaml.AliasNode { // the depth ends a cycle
		node = node.Alias
	}
	if r.nodes++; depth > 100 || r.nodes > maxNodes {
		if r.nodes <= maxNodes {
			r.problems.Add(at, "is nested too deeply")
		} else if r.nodes == maxNodes+1 {
			r.problems.Add(at, "is too large")
		}
		return nil
	}
	switch node.Kind {
	case yaml.MappingNode:
		section := map[string]any{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			name := node.Content[i].Value
			if _, twice := section[name]; twice {
				r.problems.Add(join(at, name), "duplicate key")
				continue
			}
			section[name] = r.value(join(at, name), node.Content[i+1], depth+1)
		}
		return section
	case yaml.SequenceNode:
		list := make([]any, len(node.Content))
		for i, entry := range node.Content {
			list[i] = r.value(fmt.Sprintf("%s[%d]", at, i), entry, depth+1)
		}
		return list
	default:
		return r.scalar(at, node)
	}
}

func (r *nodeReader) scalar(at string, node *yaml.Node) any {
	switch tag := node.ShortTag(); {
	case tag == "!!timestamp":
		return node.Value
	case (tag == "!!float" || tag == "!!int") && len(node.Value) > 20 && isDigits(node.Value): // a hash, not a number
		return node.Value
	}
	var v any
	if err := node.Decode(&v); err != nil {
		r.problems.Add(at, "%v", err)
	}
	return v
}

func isDigits(s string) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// linesOfYAML fills the lines of keys and entries.
func linesOfYAML(raw []byte, lines map[string]int) {
	var doc yaml.Node
	if yaml.Unmarshal(raw, &doc) == nil && len(doc.Content) == 1 {
		linesOfNode("", doc.Content[0], lines)
	}
}

// linesOfNode does not follow aliases: what an alias stands for is at the line of the alias.
func linesOfNode(at string, node *yaml.Node, lines map[string]int) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			path := lineKey(at, node.Content[i].Value)
			lines[path] = node.Content[i].Line // of the last one, if the key is there twice
			linesOfNode(path, node.Content[i+1], lines)
		}
	case yaml.SequenceNode:
		for i, entry := range node.Content {
			path := fmt.Sprintf("%s[%d]", at, i)
			lines[path] = entry.Line
			linesOfNode(path, entry, lines)
		}
	default:
	}
}
