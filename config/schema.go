package config

import (
	"encoding/json"
	"reflect"
	"strconv"
	"time"

	"github.com/feedbridge/feedbridge/internal/setting"
)

// object is a JSON object.
type object = map[string]any

// Schema returns the JSON Schema (draft 2020-12) of the configuration file.
func Schema() ([]byte, error) {
	s := schemaOf(schemaRoot)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Configuration of feedbridge"
	s["$defs"] = object{
		"variable": object{"type": "string", "pattern": `\$\{`},
		"defaults": objectSchema(schemaRoot.findKey("feed_defaults")),
	}
	return json.MarshalIndent(s, "", "  ")
}

func schemaOf(s *spec) object {
	switch {
	case s.isNameMapping():
		return object{
			"description":          s.text,
			"type":                 "object",
			"propertyNames":        object{"pattern": nameForm.String()},
			"additionalProperties": schemaOf(s.elem),
		}
	case s.isList():
		return object{"description": descriptions()[s.documentedPath()], "type": "array", "items": scalarSchema(s.elem)}
	case s.isScalar():
		schema := scalarSchema(s)
		schema["description"] = descriptions()[s.documentedPath()]
		return schema
	}
	schema := object{"$ref": "#/$defs/defaults"}
	if !s.isDefaults {
		schema = objectSchema(s)
	}
	if s.path != "" {
		schema["description"] = s.text
	}
	return schema
}

// objectSchema returns the schema of a mapping with the keys of s.
func objectSchema(s *spec) object {
	properties := object{}
	for _, k := range s.keys {
		properties[k.name] = schemaOf(k)
	}
	return object{"type": "object", "properties": properties, "additionalProperties": false}
}

// scalarSchema returns the schema of a scalar. It accepts ${VAR} for any value, and
// text that YAML reads as a number or boolean.
func scalarSchema(s *spec) object {
	form := object{"type": "string"}
	var preset any = s.preset
	switch {
	case s.typ == reflect.TypeFor[time.Duration]():
		form["pattern"] = `^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	case s.typ == startType:
		form["pattern"] = `^(beginning|now|id:.+@.+|snapshot:https?://.+|[0-9]{4}-[0-9]{2}-[0-9]{2}T.+)$`
	case s.typ == keyType:
		form["pattern"] = `^(/.*|header:.+)$`
	case setting.Words(s.typ) != nil:
		values := enumValues(setting.Words(s.typ))
		form["enum"] = values
		if len(values) > len(setting.Words(s.typ)) {
			delete(form, "type") // not only strings
		}
	case s.typ.Kind() == reflect.Bool:
		form["type"] = "boolean"
		preset = s.preset == "true"
	case s.typ.Kind() == reflect.Float64:
		form["type"] = "number"
		preset, _ = strconv.ParseFloat(s.preset, 64)
	case s.acceptsAnyText():
		form["type"] = []string{"string", "number", "boolean"}
	default:
		form["type"] = "integer"
		if s.isRange() {
			form["minimum"], form["maximum"] = s.bounds.Least.Int(), s.bounds.Most.Int()
		}
		preset, _ = strconv.ParseInt(s.preset, 10, 64)
	}
	schema := object{"anyOf": []any{form, object{"$ref": "#/$defs/variable"}}}
	if s.acceptsAnyText() {
		schema = form
	}
	if s.preset != "" {
		schema["default"] = preset
	}
	return schema
}

// enumValues returns the words of an enumeration, and those that YAML reads as
// booleans as such too.
func enumValues(valid []string) []any {
	var values []any
	for _, word := range valid {
		values = append(values, word)
		if b, err := strconv.ParseBool(word); err == nil {
			values = append(values, b)
		}
	}
	return values
}
