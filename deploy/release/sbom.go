package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

const modulePath = "github.com/feedbridge/feedbridge"

// writeSBOM writes the bill of materials of the program as CycloneDX 1.6: the modules that the
// linker recorded in the program itself, with their licences.
func (p *program) writeSBOM(ctx context.Context) error {
	info, err := buildinfo.ReadFile(p.binary())
	if err != nil {
		return err
	}
	components, err := p.components(ctx)
	if err != nil {
		return err
	}
	bom, err := newBOM(p, info, components)
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(p.out, p.name()+".cdx.json"))
	if err != nil {
		return err
	}
	err = cyclonedx.NewBOMEncoder(file, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6)
	return errors.Join(err, file.Close())
}

// newBOM returns the bill of materials. Every module that is recorded in the program must be
// among the components, whose licences are known.
func newBOM(p *program, info *debug.BuildInfo, components []component) (*cyclonedx.BOM, error) {
	bom := cyclonedx.NewBOM()
	self := cyclonedx.Component{
		BOMRef: purl(modulePath, p.version), Type: cyclonedx.ComponentTypeApplication,
		Name: "feedbridge", Version: p.version, PackageURL: purl(modulePath, p.version),
		Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
		Properties: &[]cyclonedx.Property{
			{Name: "GOOS", Value: p.system}, {Name: "GOARCH", Value: p.architecture}, {Name: "CGO_ENABLED", Value: "0"},
		},
	}
	bom.Metadata = &cyclonedx.Metadata{Timestamp: p.date.Format(time.RFC3339), Component: &self}
	var list []cyclonedx.Component
	var references []string
	for _, module := range append(info.Deps, &debug.Module{Path: "std", Version: info.GoVersion[len("go"):]}) {
		i := slices.IndexFunc(components, func(c component) bool { return c.path == module.Path && c.version == module.Version })
		if i < 0 {
			return nil, errors.New("the program contains " + module.Path + " " + module.Version + ", whose licence was not read")
		}
		ref := purl(module.Path, module.Version)
		c := cyclonedx.Component{BOMRef: ref, Type: cyclonedx.ComponentTypeLibrary, Name: module.Path, Version: module.Version, PackageURL: ref, Scope: cyclonedx.ScopeRequired}
		var licenses cyclonedx.Licenses
		for _, id := range components[i].licenses {
			if slices.Contains(allowedLicenses, id) {
				licenses = append(licenses, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: id}})
			}
		}
		c.Licenses = &licenses
		if module.Sum != "" {
			// The checksum of the Go checksum database, which is none of a file.
			c.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: module.Sum}}
		}
		list, references = append(list, c), append(references, ref)
	}
	bom.Components = &list
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: self.BOMRef, Dependencies: &references}}
	return bom, nil
}

// purl returns the package URL of a Go module.
func purl(path, version string) string { return "pkg:golang/" + path + "@" + version }
