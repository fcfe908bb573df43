package config

import (
	"fmt"
	"reflect"

	"github.com/go-viper/mapstructure/v2"

	"github.com/feedbridge/feedbridge/internal/setting"
	"github.com/feedbridge/feedbridge/source"
)

// addLayer adds the values of a source: text and lists of text, in mappings by their keys. They take precedence over
// those that were added before, and a list replaces a list. The layer must not be used again.
func (l *loader) addLayer(layer map[string]any) {
	_ = l.layers.MergeConfigMap(layer) // returns no error; types of one key never differ, since the values were read strictly
}

// layerKey returns the key of a name in the layers. viper folds keys to lower case and divides them at dots, which only
// changes invalid names: their key, which begins with a digit, is none that a name can have.
func layerKey(name string) string {
	if nameForm.MatchString(name) {
		return name
	}
	return fmt.Sprintf("%x", name)
}

// decode returns the configuration of all layers, with the defaults that do not depend on other values.
func (l *loader) decode() *Config {
	cfg := new(setting.Defaults[Config]())
	for _, k := range schemaRoot.keys {
		if k.name != "feeds" {
			l.decodeKey(k.name, reflect.ValueOf(cfg).Elem().FieldByIndex(k.index).Addr().Interface())
		}
	}
	restoreNames(cfg.Buses, l.locations.namesBelow("buses"))
	restoreNames(cfg.FeedsFrom, l.locations.namesBelow("feeds_from"))
	if cfg.Serve != nil {
		restoreNames(cfg.Serve.Feeds, l.locations.namesBelow("serve.feeds"))
	}
	l.decodeFeeds(cfg)
	return cfg
}

// restoreNames gives the elements of a mapping their names in place of their keys in the layers.
func restoreNames[T any](elements map[string]T, names []string) {
	for _, name := range names {
		if key := layerKey(name); key != name {
			elements[name] = elements[key]
			delete(elements, key)
		}
	}
}

// decodeFeeds sets the feeds, and the defaults of all feeds and of those of each list.
func (l *loader) decodeFeeds(cfg *Config) {
	base := decodeFeed(setting.Defaults[Feed](), l.layers.GetStringMap("feed_defaults"))
	cfg.FeedDefaults = l.decodeDefaults(schemaRoot.findKey("feed_defaults"), "feed_defaults")
	ofList := map[string]Feed{}
	for name, list := range cfg.FeedsFrom {
		path := "feeds_from." + layerKey(name) + ".defaults"
		ofList[name] = decodeFeed(base, l.layers.GetStringMap(path))
		list.Defaults = l.decodeDefaults(schemaRoot.findKey("feeds_from").elem.findKey("defaults"), path)
		cfg.FeedsFrom[name] = list
	}
	own := l.layers.GetStringMap("feeds")
	for _, name := range l.locations.namesBelow("feeds") {
		if cfg.Feeds == nil {
			cfg.Feeds = map[string]Feed{}
		}
		if list := l.listOf[name]; list != "" {
			f := decodeFeed(ofList[list], nil)
			f.Source.URL = l.listed[name].URL
			cfg.Feeds[name] = f
		} else {
			values, _ := own[layerKey(name)].(map[string]any)
			cfg.Feeds[name] = decodeFeed(base, values)
		}
	}
}

// decodeFeed returns base with the values of a feed, or of defaults of feeds. Credentials are taken as a whole.
func decodeFeed(base Feed, values map[string]any) Feed {
	if values["auth"] != nil {
		base.Source.Auth = source.Auth{}
	}
	// The values are decoded into what these point to.
	if base.To.Stream != nil {
		base.To.Stream = new(*base.To.Stream)
	}
	if base.To.Kafka != nil {
		base.To.Kafka = new(*base.To.Kafka)
	}
	// Only keys that are set: mapstructure would look at each field, of each of many thousand feeds.
	s, v := schemaRoot.findKey("feeds").elem, reflect.ValueOf(&base).Elem()
	for key, value := range values {
		k := s.findKey(key)
		options := mapstructure.DecoderConfig{Result: v.FieldByIndex(k.index).Addr().Interface()}
		decoding(&options)
		decoder, _ := mapstructure.NewDecoder(&options) // fails for options only
		checkDecoded(k.path, decoder.Decode(value))
	}
	return base
}

// decodeDefaults returns the values of s, which is at path in the layers, without those that are empty.
func (l *loader) decodeDefaults(s *spec, path string) (set Defaults) {
	s.forEachSetting(func(k *spec) {
		key, v := k.path[len(s.path)+1:], reflect.New(k.typ)
		if l.layers.Get(joinPath(path, key)) == nil {
			return
		}
		l.decodeKey(joinPath(path, key), v.Interface())
		if v = v.Elem(); k.isList() && v.Len() == 0 || k.preset == "" && v.IsZero() {
			return
		}
		if set == nil {
			set = Defaults{}
		}
		set[key] = v.Interface()
	})
	return set
}

// decodeKey decodes the value at path in the layers into target, a pointer. Without a value target stays.
func (l *loader) decodeKey(path string, target any) {
	checkDecoded(path, l.layers.UnmarshalKey(path, target, decoding))
}

// checkDecoded panics if a value cannot be decoded: it was read as one of its key before. The error is left out, since
// it may quote a secret.
func checkDecoded(path string, err error) {
	if err != nil {
		panic("config: a value of " + path + " was read, but cannot be decoded")
	}
}

// decoding has viper decode values by the tags that the specs are made of.
func decoding(c *mapstructure.DecoderConfig) {
	c.TagName, c.SquashTagOption, c.ErrorUnused, c.WeaklyTypedInput = "yaml", "inline", true, false
	c.MatchName = func(key, field string) bool { return key == field }
	c.DecodeHook = decodeHook
}

// decodeHook decodes text, and prepares the target of all else. mapstructure would leave a new struct without its
// defaults, and write the items of a list into an array that the defaults and other feeds have too.
func decodeHook(from, to reflect.Value) (any, error) {
	switch {
	case from.Kind() == reflect.String:
		v, err := setting.Decode(to.Type(), from.String())
		return v.Interface(), err
	case to.Type() == reflect.TypeFor[Defaults]():
		return nil, nil // see decodeDefaults
	case to.Kind() == reflect.Slice:
		to.SetZero()
	case to.Kind() == reflect.Struct && to.IsZero():
		setting.Complete(to.Addr().Interface())
	}
	return from.Interface(), nil
}
