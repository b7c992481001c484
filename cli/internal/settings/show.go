package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// YAML writes c as a file that Load reads. Passwords in URLs and the tokens of backends are masked.
func YAML(c config.Config) ([]byte, error) {
	raw, err := JSON(c)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	plain(&doc)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&doc); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// JSON writes c as indented JSON. Passwords in URLs and the tokens of backends are masked.
func JSON(c config.Config) ([]byte, error) {
	c.HTTP.Tokens = slices.Clone(c.HTTP.Tokens)
	if c.HTTP.Tokens == nil {
		c.HTTP.Tokens = []config.Token{}
	}
	for i, t := range c.HTTP.Tokens {
		if len(t.Scopes) == 0 {
			c.HTTP.Tokens[i].Scopes = []string{string(executor.ScopeExec), string(executor.ScopeRead)}
		}
	}
	c.Backends = maps.Clone(c.Backends)
	for name, b := range c.Backends {
		masked, err := mask(b.Options)
		if err != nil {
			return nil, fmt.Errorf("backends.%s: %w", name, err)
		}
		b.Options = masked
		c.Backends[name] = b
	}
	return json.MarshalIndent(c, "", "  ")
}

func mask(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return raw, nil
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	return json.Marshal(maskValue(v))
}

func maskValue(v any) any {
	switch v := v.(type) {
	case string:
		if u, err := url.Parse(v); err == nil && u.User != nil {
			return u.Redacted()
		}
		return v
	case []any:
		for i := range v {
			v[i] = maskValue(v[i])
		}
		return v
	case map[string]any:
		for k := range v {
			if text, ok := v[k].(string); ok && k == "token" && text != "" {
				v[k] = "xxxxx" // as Redacted writes
				continue
			}
			v[k] = maskValue(v[k])
		}
		return v
	default:
		return v
	}
}

// plain removes the flow style and the quotes of JSON. The encoder adds quotes where YAML needs them.
func plain(node *yaml.Node) {
	if node.Kind != yaml.ScalarNode {
		node.Style = 0
	} else if node.ShortTag() == "!!str" {
		node.Style = 0
		node.Tag = "!!str"
	}
	for _, child := range node.Content {
		plain(child)
	}
}
