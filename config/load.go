package config

import (
	"path/filepath"
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
	readVariables(l.valueSet)
	readSettings(l.valueSet, opts.Set)
	cfg := l.buildConfig()
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

// A loader reads the sources of a configuration, and completes and checks it.
type loader struct{ *valueSet }

func newLoader(environ []string) loader { return loader{newValueSet(environ)} }

// readFile reads the YAML file at path, unless path is empty.
func (l loader) readFile(path string) {
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
func (l loader) readYAML(name string, data []byte) {
	l.file = name
	node, err := parseYAML(data)
	if err != nil {
		if !l.feedless || err.Text != emptyFile {
			l.reportAt(location{name, err.Line}, "", err.Text)
		}
		return
	}
	fileReader(l).readNode(schemaRoot, "", node)
}

// loadConfig reads the sources other than the file after it, and returns the configuration.
func (l loader) loadConfig(opts Options) (*Config, error) {
	readVariables(l.valueSet)
	readSettings(l.valueSet, opts.Set)
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
		cfg.loaded = l.valueSet
	}
	return cfg, nil
}

// complete returns the configuration with all defaults. It checks it.
func (l loader) complete() *Config {
	buses := l.locations.namesBelow("buses")
	if len(buses) == 0 {
		buses = []string{"embedded"}
		l.locations.setLocation("buses.embedded.embedded", location{})
	}
	cfg := l.buildConfig()
	completeAdmin(cfg, l.environ, l.file)
	completeDefaults(cfg, buses, l.locations)
	(&validator{cfg, buses, l.feedless, map[[2]string][]string{}, &l.diagnostics}).checkConfig()
	return cfg
}
