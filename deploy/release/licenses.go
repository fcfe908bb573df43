package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowedLicenses are the SPDX identifiers of licences that a dependency may have. Each allows
// to pass the program on with the text of the licence.
var allowedLicenses = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD-2-Clause-Views", "ISC", "MIT", "MPL-2.0"}

// A component is a module in a program.
type component struct {
	path, version string
	licenses      []string // SPDX identifiers
	files         map[string][]byte
}

// licenseFiles are the names of files with licences and the notices that Apache-2.0 wants passed on.
var licenseFiles = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// components returns the modules in the program besides feedbridge, and Go, in the order of
// their paths. One without a licence that is allowed is an error.
func (p *program) components(ctx context.Context) ([]component, error) {
	list, err := p.goCommand(ctx, "list", "-deps", "-json=Module", "./cmd/feedbridge")
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{}
	versions := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(list)); ; {
		var pkg struct {
			Module *struct {
				Path, Version, Dir string
				Main               bool
				Replace            *struct{ Path, Version string }
			}
		}
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if m := pkg.Module; m != nil && !m.Main {
			if m.Replace != nil {
				return nil, fmt.Errorf("the module %s is replaced, which a release must not have", m.Path)
			}
			dirs[m.Path], versions[m.Path] = m.Dir, m.Version
		}
	}
	text, err := p.goCommand(ctx, "env", "GOROOT", "GOVERSION")
	if err != nil {
		return nil, err
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	dirs["std"], versions["std"] = root, strings.TrimPrefix(version, "go")

	var all []component
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(dirs)) {
		c := component{path: path, version: versions[path]}
		errs = append(errs, c.readLicenses(dirs[path]))
		all = append(all, c)
	}
	return all, errors.Join(errs...)
}

// readLicenses reads the licences in the directory of a module.
func (c *component) readLicenses(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	c.files = map[string][]byte{}
	for _, entry := range entries {
		if entry.IsDir() || !licenseFiles.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		c.files[entry.Name()] = text
		for _, match := range licensecheck.Scan(text).Match {
			if !slices.Contains(c.licenses, match.ID) && !match.IsURL {
				c.licenses = append(c.licenses, match.ID)
			}
		}
	}
	slices.Sort(c.licenses)
	if len(c.licenses) == 0 {
		return fmt.Errorf("no known licence in the module %s %s (%s)", c.path, c.version, dir)
	}
	for _, id := range c.licenses {
		// The additional grant of patents of the Go project restricts nothing.
		if !slices.Contains(allowedLicenses, id) && id != "GooglePatentsFile" && id != "GooglePatentClause" {
			return fmt.Errorf("the module %s %s has the licence %s; allowed are %s", c.path, c.version, id, strings.Join(allowedLicenses, ", "))
		}
	}
	return nil
}

// licensesFile has the licences of all components, for people.
const licensesFile = "THIRD_PARTY_LICENSES.txt"

func (p *program) writeLicenses(ctx context.Context) error {
	components, err := p.components(ctx)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "feedbridge %s for %s/%s contains the following software.\n\n", p.version, p.system, p.architecture)
	for _, c := range components {
		fmt.Fprintf(&text, "%s %s: %s\n", c.path, c.version, strings.Join(c.licenses, ", "))
	}
	for _, c := range components {
		for _, name := range slices.Sorted(maps.Keys(c.files)) {
			line := strings.Repeat("=", 80)
			fmt.Fprintf(&text, "\n%s\n%s %s, %s\n%s\n\n%s\n", line, c.path, c.version, name, line, bytes.TrimSpace(c.files[name]))
		}
	}
	return os.WriteFile(filepath.Join(p.dir(), licensesFile), text.Bytes(), 0o644)
}
