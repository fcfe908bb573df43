package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// writePackages writes a deb and an rpm of a program for Linux.
func (p *program) writePackages(context.Context) error {
	if p.system != "linux" {
		return nil
	}
	for _, format := range []string{"deb", "rpm"} {
		if err := p.writePackage(format); err != nil {
			return errors.Join(errors.New(format), err)
		}
	}
	return nil
}

func (p *program) writePackage(format string) error {
	contents, err := p.installed()
	if err != nil {
		return err
	}
	script := func(name string) string { return filepath.Join(p.source, "deploy/release/scripts", name) }
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "feedbridge", Arch: p.architecture, Platform: "linux", Version: p.version, VersionSchema: "semver",
		Maintainer:  "The feedbridge project <https://github.com/feedbridge/feedbridge>",
		Description: "Copies HTTP feeds to NATS JetStream or Kafka\nfeedbridge polls HTTP feeds and publishes their entities to NATS JetStream or\nKafka as ordered messages, each once. It serves topics as feeds again.",
		Homepage:    "https://github.com/feedbridge/feedbridge",
		License:     "Apache-2.0", Section: "net", Priority: "optional", MTime: p.date,
		Overridables: nfpm.Overridables{
			Contents: contents,
			Scripts: nfpm.Scripts{
				PostInstall: script("postinstall"),
				PreRemove:   script("preremove"),
				PostRemove:  script("postremove"),
			},
		},
	})
	if format == "deb" {
		// The first is for containers without systemd.
		info.Depends = []string{"systemd | systemd-standalone-sysusers", "systemd | systemd-standalone-tmpfiles"}
	} else {
		info.Depends = []string{"systemd"}
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(p.out, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	return errors.Join(packager.Package(info, file), file.Close())
}

// installed returns the files of a package. None is in /etc: without a configuration the
// service refuses to start with an error that names the missing file.
func (p *program) installed() (files.Contents, error) {
	var contents files.Contents
	add := func(from, to string, mode os.FileMode) {
		contents = append(contents, &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{Mode: mode, MTime: p.date, Owner: "root", Group: "root"}})
	}
	deploy := func(name string) string { return filepath.Join(p.source, "deploy", name) }
	add(p.binary(), "/usr/bin/feedbridge", 0o755)
	add(deploy("feedbridge.service"), "/usr/lib/systemd/system/feedbridge.service", 0o644)
	add(deploy("feedbridge.sysusers"), "/usr/lib/sysusers.d/feedbridge.conf", 0o644)
	add(deploy("feedbridge.tmpfiles"), "/usr/lib/tmpfiles.d/feedbridge.conf", 0o644)
	add(deploy("feedbridge.yaml"), "/usr/share/doc/feedbridge/feedbridge.yaml", 0o644)
	add(deploy("alerts.yaml"), "/usr/share/doc/feedbridge/alerts.yaml", 0o644)
	add(filepath.Join(p.source, "LICENSE"), "/usr/share/doc/feedbridge/copyright", 0o644)
	add(filepath.Join(p.dir(), licensesFile), "/usr/share/doc/feedbridge/"+licensesFile, 0o644)
	add(filepath.Join(p.work, "completion", shells["bash"]), "/usr/share/bash-completion/completions/feedbridge", 0o644)
	add(filepath.Join(p.work, "completion", shells["fish"]), "/usr/share/fish/vendor_completions.d/feedbridge.fish", 0o644)
	add(filepath.Join(p.work, "completion", shells["zsh"]), "/usr/share/zsh/vendor-completions/_feedbridge", 0o644)
	pages, err := os.ReadDir(filepath.Join(p.work, "man"))
	for _, page := range pages {
		add(filepath.Join(p.work, "man", page.Name()), "/usr/share/man/man1/"+page.Name(), 0o644)
	}
	return contents, err
}
