package config

import (
	"encoding"
	"reflect"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// A spec describes one key of the configuration. The tree of specs is derived once from
// the structs and their defaults. Strict reading, the names of variables, printing, the
// JSON Schema and docs/configuration.md use it.
type spec struct {
	// path has * for names: feeds.*.auth.basic.password.
	path string
	// name is the path's last part.
	name string
	// typ is never a pointer.
	typ reflect.Type
	// index is the index of the field in the struct of the spec above.
	index []int
	// optional marks a pointer: if the key does not occur it is nil and has no
	// defaults.
	optional bool
	// kind is the only kind of feeds that has the key; empty if all have it.
	kind string
	// keys are the keys of a struct, in its order.
	keys []*spec
	// elem describes the elements of a list or of a mapping by names.
	elem *spec
	// preset is the default of a scalar as text; empty for a zero default.
	preset string
}

// root is the spec of the whole configuration.
var root = specOf("", reflect.ValueOf(Config{
	DataDir:   "./feedbridge-data",
	Log:       Log{Level: "info", Format: "auto"},
	Grace:     30 * time.Second,
	ReadAhead: ReadAhead{Total: 64 << 20, Feed: 8 << 20},
	Admin:     Admin{Listen: "127.0.0.1:9321"},
}))

// presets returns a t with its defaults, where t is the element type of a map or a
// pointer.
func presets(t reflect.Type) reflect.Value {
	for _, v := range []any{
		Feed{
			Source:       source.Defaults(),
			Format:       "auto",
			Every:        10 * time.Second,
			Start:        datareplication.Start{},
			Gap:          datareplication.GapHalt,
			Syndication:  syndication.Defaults().Settings,
			Oversize:     sink.Stop,
			DedupeWindow: 100_000,
		},
		nats.Config{Timeout: 10 * time.Second},
		nats.Stream{Create: true, Replicas: 1},
		kafka.Defaults(),
		kafka.DefaultOptions(),
		Embedded{Listen: "127.0.0.1:4222"},
		Serve{Listen: "127.0.0.1:8080", Connections: serve.DefaultConnections, Memory: serve.DefaultMemory},
		Served{Format: serve.DataReplication},
	} {
		if reflect.TypeOf(v) == t {
			return reflect.ValueOf(v)
		}
	}
	return reflect.Zero(t)
}

func specOf(path string, v reflect.Value) *spec {
	t := v.Type()
	if t.Kind() == reflect.Pointer {
		s := specOf(path, presets(t.Elem()))
		s.optional = true
		return s
	}
	s := &spec{path: path, name: path[strings.LastIndex(path, ".")+1:], typ: t}
	switch {
	case isScalar(t):
		if text := encodeText(v); !v.IsZero() || t.Kind() == reflect.Struct {
			s.preset = text
		}
	case t.Kind() == reflect.Struct:
		s.addKeys(v)
	case t.Kind() == reflect.Map:
		s.elem = specOf(join(path, "*"), presets(t.Elem()))
	case t.Kind() == reflect.Slice:
		s.elem = specOf(path, reflect.Zero(t.Elem()))
	default:
		panic("config: " + path + " has a type that the configuration cannot have: " + t.String())
	}
	return s
}

func (s *spec) addKeys(v reflect.Value) {
	for _, f := range reflect.VisibleFields(v.Type()) {
		tag, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case tag == "-" || len(f.Index) > 1:
		case option == "inline":
			inner := specOf(s.path, v.FieldByIndex(f.Index))
			for _, k := range inner.keys {
				k.index = append(append([]int{}, f.Index...), k.index...)
				k.kind = f.Tag.Get("kind")
				s.keys = append(s.keys, k)
			}
		default:
			k := specOf(join(s.path, tag), v.FieldByIndex(f.Index))
			k.index, k.kind = f.Index, f.Tag.Get("kind")
			s.keys = append(s.keys, k)
		}
	}
}

// suits reports whether the setting has a meaning for a format.
func (s *spec) suits(f Format) bool { return s.kind == "" || f.Kind() == "" || s.kind == f.Kind() }

// isNames reports whether s is a mapping whose keys the operator chooses.
func (s *spec) isNames() bool { return s.typ.Kind() == reflect.Map }

// isList reports whether s is a list of scalars.
func (s *spec) isList() bool { return s.typ.Kind() == reflect.Slice }

func (s *spec) isScalar() bool { return s.keys == nil && s.elem == nil }

// key returns the spec of a key of s, or nil.
func (s *spec) key(name string) *spec {
	if s.isNames() {
		return s.elem
	}
	for _, k := range s.keys {
		if k.name == name {
			return k
		}
	}
	return nil
}

// settings calls f for every scalar and list at or below s.
func (s *spec) settings(f func(*spec)) {
	switch {
	case s.isNames():
		s.elem.settings(f)
	case s.keys == nil:
		f(s)
	}
	for _, k := range s.keys {
		k.settings(f)
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// isScalar reports whether a t is written as one piece of text.
func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		return true
	}
	return reflect.PointerTo(t).Implements(textUnmarshaler)
}
