package config

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/viper"
)

// Load reads, completes and checks a configuration. Its error is of type
// [Errors] and has all errors.
func Load(opts Options) (*Config, error) {
	l := newLoader(opts.Environ)
	l.feedless = opts.Feedless
	l.readFile(opts)
	return l.loadConfig(opts)
}

// LoadAdmin reads only the settings of the admin server of a running daemon. Errors in other
// parts of the configuration are ignored: a client needs neither the variables nor the files
// that they name. Its error is of type [Errors].
func LoadAdmin(opts Options) (Admin, error) {
	l := newLoader(opts.Environ)
	l.readFile(opts)
	l.readVariables()
	l.readSettings(opts.Set)
	cfg := l.decode()
	completeAdmin(cfg, l.environ, l.file)
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

// A loader reads the sources of a configuration, one after the other, and completes and checks it.
type loader struct {
	environ map[string]string
	// layers has the values of the sources; see [loader.addLayer].
	layers *viper.Viper
	// feedless has the value of the field of Options.
	feedless bool
	diagnostics
}

// newLoader returns a loader with the environment. Blanks and line ends behind a value are left out: a variable that was
// made of a file has them.
func newLoader(environ []string) *loader {
	l := &loader{environ: map[string]string{}, layers: viper.New(), diagnostics: newDiagnostics()}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		l.environ[name] = strings.TrimRight(value, " \t\r\n")
	}
	return l
}

// readFile reads the file of the options, if there is one.
func (l *loader) readFile(opts Options) {
	data, err := opts.Data, error(nil)
	if data == nil && opts.File != "" {
		data, err = readFile(opts.File)
	}
	if err != nil {
		l.reportAt(location{source: opts.File}, "", err.Error())
	} else if data != nil {
		l.readYAML(opts.File, data)
	}
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
	values, _ := fileReader{l}.readNode(schemaRoot, "", node).(map[string]any)
	l.addLayer(values)
}

// loadConfig reads the sources other than the file after it, and returns the configuration.
func (l *loader) loadConfig(opts Options) (*Config, error) {
	l.readVariables()
	l.readSettings(opts.Set)
	if opts.URL != "" {
		path, feed, layer := joinPath("feeds", feedName(opts.URL)), schemaRoot.findKey("feeds").elem, viper.New()
		// URL is the source of its errors.
		l.setText(layer, feed.findKey("url"), path+".url", opts.URL, location{source: "URL"})
		if opts.Topic != "" {
			l.setText(layer, feed.findKey("to").findKey("topic"), path+".to.topic", opts.Topic, location{source: "--topic"})
		}
		l.addLayer(layer.AllSettings())
	}
	cfg := l.complete()
	if len(l.errs) > 0 {
		l.errs.sortByLocation()
		return nil, l.errs
	}
	if l.file != "" {
		cfg.file, _ = filepath.Abs(l.file) // fails only without a working directory
	}
	if len(cfg.FeedsFrom) > 0 {
		cfg.loaded = l
	}
	return cfg, nil
}

// setText adds the value of s, which is at path, to a layer from a text outside of the file. No error
// quotes a value that may be a secret.
func (l *loader) setText(layer *viper.Viper, s *spec, path, text string, at location) {
	value, err := s.parse(text)
	if items, _ := value.([]any); !s.isSecret() && slices.ContainsFunc(append(items, text), isQuoted) {
		err = errors.New("the value begins with a quote, which is a part of it; remove the quotes")
	}
	if err != nil {
		l.reportAt(at, path, err.Error())
		return
	}
	if l.file != "" && l.locations[path].source == l.file {
		l.overridden = append(l.overridden, path)
	}
	maps.DeleteFunc(l.locations, func(item string, _ location) bool { return s.isList() && strings.HasPrefix(item, path+"[") })
	l.locations.setLocation(path, at)
	layer.Set(path, value)
}

// isQuoted reports whether text is in quotes, which some programs that read env files keep.
func isQuoted(value any) bool {
	text, _ := value.(string)
	return len(text) > 1 && (text[0] == '"' || text[0] == '\'') && strings.Index(text[1:], text[:1]) == len(text)-2
}

// complete returns the configuration with all defaults. It checks it.
func (l *loader) complete() *Config {
	buses := l.locations.namesBelow("buses")
	if len(buses) == 0 {
		buses = []string{"embedded"}
		l.locations.setLocation("buses.embedded.embedded", location{})
		l.addLayer(map[string]any{"buses": map[string]any{"embedded": map[string]any{"embedded": map[string]any{}}}})
	}
	cfg := l.decode()
	cfg.set = l.diagnostics
	completeAdmin(cfg, l.environ, l.file)
	completeDefaults(cfg, buses, l.locations)
	(&validator{cfg, buses, l.feedless, map[[2]string][]string{}, &l.diagnostics}).checkConfig()
	return cfg
}
