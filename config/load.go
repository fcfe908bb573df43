package config

import (
	"maps"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Load reads, completes and checks a configuration. Its error is of type
// [Errors] and has all errors.
func Load(opts Options) (*Config, error) {
	l := newLoader(opts.Environ)
	l.feedless = opts.Feedless
	if opts.Data != nil {
		l.readYAML(opts.File, opts.Data)
	} else {
		l.readFile(opts.File)
	}
	return l.loadConfig(opts)
}

// LoadAdmin reads only the settings of the admin server of a running daemon. Errors in other
// parts of the configuration are ignored: a client needs neither the variables nor the files
// that they name. Its error is of type [Errors].
func LoadAdmin(opts Options) (Admin, error) {
	l := newLoader(opts.Environ)
	l.readFile(opts.File)
	l.readVariables()
	l.readSettings(opts.Set)
	cfg := l.buildConfig()
	l.completeAdmin(cfg)
	completeDefaults(cfg, nil, l.locations)
	(&validator{cfg: cfg, diagnostics: &l.diagnostics}).checkAdmin(cfg.Admin)
	errs := slices.DeleteFunc(l.errs, func(e *Error) bool {
		return e.Key != "" && e.Key != "admin" && !strings.HasPrefix(e.Key, "admin.")
	})
	if len(errs) > 0 {
		errs.sortByLocation()
		return Admin{}, errs
	}
	return cfg.Admin, nil
}

// A loader reads the sources of a configuration one after the other. A value of a later one
// takes precedence.
type loader struct {
	environ map[string]string
	// values has the scalars and lists that are set, by path.
	values map[string]reflect.Value
	// feedless is that of Options.
	feedless bool
	// titles has the titles of feeds in lists, by name.
	titles map[string]string
	diagnostics
}

func newLoader(environ []string) *loader {
	l := &loader{
		environ:     map[string]string{},
		values:      map[string]reflect.Value{},
		titles:      map[string]string{},
		diagnostics: diagnostics{locations: locations{}, suppressed: map[string]bool{}, inDefaults: map[string]bool{}, listOf: map[string]string{}, refusedFeeds: map[string]bool{}, incumbents: map[string]bool{}},
	}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		l.environ[name] = value
	}
	return l
}

// readFile reads the YAML file at path, unless path is empty.
func (l *loader) readFile(path string) {
	if path == "" {
		return
	}
	data, err := readFile(path)
	if err != nil {
		l.reportAt(location{source: path}, "", err.Error())
		return
	}
	l.readYAML(path, data)
}

// readYAML reads data, which is the content of the file.
func (l *loader) readYAML(name string, data []byte) {
	l.file = name
	node, err := parseYAML(data)
	if err != nil {
		if !l.feedless || err.Text != emptyFile {
			l.reportAt(location{name, err.Line}, "", err.Text)
		}
		return
	}
	l.readNode(schemaRoot, "", node)
}

// setText sets the value of s, which is at path, from a text outside of the file. No error
// quotes a value that may be a secret.
func (l *loader) setText(s *spec, path, text string, at location) {
	v, err := s.decode(text)
	if err != nil {
		l.reportAt(at, path, err.Error())
		return
	}
	l.locations.setLocation(path, at)
	l.values[path] = v
}

// loadConfig reads the sources other than the file after it, and returns the configuration.
func (l *loader) loadConfig(opts Options) (*Config, error) {
	l.readVariables()
	l.readSettings(opts.Set)
	if opts.URL != "" {
		path, feed := joinPath("feeds", feedName(opts.URL)), schemaRoot.findKey("feeds").elem
		// URL is the source of its errors.
		l.setText(feed.findKey("url"), path+".url", opts.URL, location{source: "URL"})
		if opts.Topic != "" {
			l.setText(feed.findKey("to").findKey("topic"), path+".to.topic", opts.Topic, location{source: "--topic"})
		}
	}
	cfg := l.complete()
	if len(l.errs) > 0 {
		l.errs.sortByLocation()
		return nil, l.errs
	}
	cfg.set = l.locations
	if l.file != "" {
		cfg.file, _ = filepath.Abs(l.file) // fails only without a working directory
	}
	if len(cfg.FeedsFrom) > 0 {
		cfg.loaded = l
	}
	return cfg, nil
}

// complete returns the configuration with all defaults. It checks it.
func (l *loader) complete() *Config {
	buses := l.locations.namesBelow("buses")
	if len(buses) == 0 {
		buses = []string{"embedded"}
		l.locations.setLocation("buses.embedded.embedded", location{})
	}
	cfg := l.buildConfig()
	l.completeAdmin(cfg)
	completeDefaults(cfg, buses, l.locations)
	(&validator{cfg, buses, l.feedless, map[[2]string][]string{}, &l.diagnostics}).checkConfig()
	return cfg
}

// clone returns a loader with the same values, and without errors.
func (l *loader) clone() *loader {
	c := newLoader(nil)
	c.file, c.feedless, c.environ, c.values, c.locations = l.file, l.feedless, l.environ, maps.Clone(l.values), maps.Clone(l.locations)
	return c
}

// buildConfig returns the configuration with the values that are set, and with the defaults
// that do not depend on other values.
func (l *loader) buildConfig() *Config {
	cfg := &Config{}
	l.build(schemaRoot, "", reflect.ValueOf(cfg).Elem())
	return cfg
}

// build sets v, which is the zero value of s at path.
func (l *loader) build(s *spec, path string, v reflect.Value) {
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

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// feedName makes a name of a URL's host and path.
func feedName(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "feed"
	}
	name := notInName.ReplaceAllString(strings.ToLower(u.Host+u.Path), "-")
	switch name = strings.Trim(name, "-"); {
	case name == "":
		return "feed"
	case name[0] <= '9':
		return "feed-" + name
	}
	return name
}
