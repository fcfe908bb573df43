package config

import (
	"reflect"
	"strings"
)

// buildConfig returns the configuration with the values that are set, and with the defaults
// that do not depend on other values.
func (l *valueSet) buildConfig() *Config {
	cfg := &Config{}
	l.build(schemaRoot, "", reflect.ValueOf(cfg).Elem())
	return cfg
}

// build sets v, which is the zero value of s at path.
func (l *valueSet) build(s *spec, path string, v reflect.Value) {
	if s.optional {
		if !l.locations.isSet(l.layer(path)) {
			return
		}
		v.Set(reflect.New(s.typ))
		v = v.Elem()
	}
	switch {
	case s.isNameMapping():
		for _, name := range l.locations.namesBelow(path) {
			if v.IsNil() {
				v.Set(reflect.MakeMap(s.typ))
			}
			elem := reflect.New(s.elem.typ).Elem()
			l.build(s.elem, joinPath(path, name), elem)
			v.SetMapIndex(reflect.ValueOf(name), elem)
		}
	case s.isDefaults:
		v.Set(reflect.ValueOf(l.buildDefaults(s, path)))
		return
	case s.keys == nil:
		v.Set(s.value)
		if set, ok := l.values[l.layer(path)]; ok {
			v.Set(set)
		}
	}
	for _, k := range s.keys {
		l.build(k, joinPath(path, k.name), v.FieldByIndex(k.index))
	}
}

// buildDefaults returns the values of s, which is at path.
func (l *valueSet) buildDefaults(s *spec, path string) (set Defaults) {
	s.forEachSetting(func(k *spec) {
		v, ok := l.values[path+strings.TrimPrefix(k.path, s.path)]
		if !ok || k.isList() && v.Len() == 0 || k.preset == "" && v.IsZero() {
			return
		}
		if set == nil {
			set = Defaults{}
		}
		set[strings.TrimPrefix(k.path, s.path+".")] = v.Interface()
	})
	return set
}
