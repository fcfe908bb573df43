package config

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

func TestSchemaForm(t *testing.T) {
	t.Parallel()
	got, err := Schema()
	must.Succeed(t, err)
	golden(t, "testdata/schema.golden", append(got, '\n'))
}

// An editor shows the description of each key, also of the keys that only contain others.
func TestSchemaDescribesEveryKey(t *testing.T) {
	t.Parallel()
	var check func(s *spec, schema object)
	check = func(s *spec, schema object) {
		if text, _ := schema["description"].(string); s.path != "" && !strings.HasSuffix(text, ".") && !strings.HasSuffix(text, ".)") {
			t.Errorf("the schema describes %s as %q; want a sentence in docs/configuration.md, or in a tag doc or each", s.path, text)
		}
		switch {
		case s.isNameMapping():
			check(s.elem, schema["additionalProperties"].(object))
		case s.isDefaults: // its keys are those of a feed
		case !s.isList() && !s.isScalar():
			for _, k := range s.keys {
				check(k, schema["properties"].(object)[k.name].(object))
			}
		}
	}
	check(schemaRoot, schemaOf(schemaRoot))
}

func TestSchemaTakesGoodFiles(t *testing.T) {
	t.Parallel()
	files, _ := filepath.Glob("testdata/*.good.yaml")
	for _, file := range append(files, "../deploy/feedbridge.yaml") {
		if err := validate(t, read(t, file)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"bool_not_one", "bus_name_with_dot", "duration_in_days", "duration_not_one", "duration_without_unit",
		"dialect_unknown", "gap_unknown", "header_without_quotes", "headers_is_mapping", "kafka_mechanism", "list_is_text",
		"log_level_unknown", "mapping_is_text", "name_with_capital", "names_is_list", "null_feed", "null_value",
		"number_not_one", "number_not_whole", "number_with_unit", "oversize_unknown",
		"replicas_zero", "serve_format_unknown", "start_snapshot",
		"start_unknown", "text_is_mapping", "top_is_list", "unknown_key", "unknown_key_deep", "unknown_key_top",
	} {
		if err := validate(t, read(t, filepath.Join("testdata", name+".bad.yaml"))); err == nil {
			t.Errorf("%s.bad.yaml satisfies the schema", name)
		}
	}
}

// validate checks a file against the schema.
func validate(t *testing.T, file []byte) error {
	t.Helper()
	text, err := Schema()
	must.Succeed(t, err)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	must.Succeed(t, err)
	compiler := jsonschema.NewCompiler()
	must.Succeed(t, compiler.AddResource("schema.json", document))
	schema, err := compiler.Compile("schema.json")
	must.Succeed(t, err)
	var doc yaml.Node
	must.Succeed(t, yaml.Unmarshal(file, &doc))
	return schema.Validate(jsonOf(doc.Content[0]))
}

// jsonOf returns the value of a node in the core schema of YAML 1.2, which has no
// timestamps.
func jsonOf(n *yaml.Node) any {
	switch n.Kind {
	case yaml.AliasNode:
		return jsonOf(n.Alias)
	case yaml.MappingNode:
		m := object{}
		for i := 0; i < len(n.Content); i += 2 {
			m[n.Content[i].Value] = jsonOf(n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			list = append(list, jsonOf(item))
		}
		return list
	}
	var v any
	if n.ShortTag() == "!!timestamp" || n.Decode(&v) != nil {
		return n.Value
	}
	if i, ok := v.(int); ok {
		return float64(i)
	}
	return v
}
