package config

import (
	"reflect"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
)

// layers has the values of a configuration by source. viper gives overrides precedence
// over the file, and the file over defaults, and decodes the result.
type layers struct {
	viper     *viper.Viper
	locations locations
}

// override gives path a value that takes precedence over the file.
func (l *layers) override(path string, value any, at location) {
	l.locations.setLocation(path, at)
	l.viper.Set(path, value)
}

// decodeConfig adds the defaults and returns the configuration. All values must be valid.
func (l *layers) decodeConfig() (*Config, error) {
	l.setDefaults(root, "")
	cfg := &Config{}
	return cfg, l.viper.UnmarshalExact(cfg, func(d *mapstructure.DecoderConfig) {
		d.TagName = "yaml"
		d.SquashTagOption = "inline"
		d.WeaklyTypedInput = false
		d.DecodeHook = func(from, to reflect.Value) (any, error) {
			if from.Kind() != reflect.String || !isScalarType(to.Type()) {
				return from.Interface(), nil
			}
			v, err := decodeText(to.Type(), from.String())
			return v.Interface(), err
		}
	})
}

// setDefaults sets the defaults of s, which is at path, for the names that occur: viper
// has no defaults for names that the operator chooses.
func (l *layers) setDefaults(s *spec, path string) {
	if s.optional && !l.locations.isSet(path) {
		return
	}
	switch {
	case s.isNameMapping():
		for _, name := range l.locations.namesBelow(path) {
			l.setDefaults(s.elem, joinPath(path, name))
		}
	case s.preset != "":
		l.viper.SetDefault(path, s.preset)
	}
	for _, k := range s.keys {
		l.setDefaults(k, joinPath(path, k.name))
	}
}
