// Package site_test checks the site that site/versions has built from docs/.
package site_test

import (
	"encoding/json"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// built returns the directory of the built site. The test is skipped without one.
func built(t *testing.T) fs.FS {
	t.Helper()
	dir := os.Getenv("FEEDBRIDGE_SITE")
	if dir == "" {
		t.Skip("FEEDBRIDGE_SITE is not set; 'make site' sets it")
	}
	return os.DirFS(dir)
}

// A prerelease precedes its release, and the first page never leads to one.
func TestSiteLeadsToTheNewestRelease(t *testing.T) {
	dir := t.TempDir()
	script, err := os.ReadFile("versions")
	must.Succeed(t, err)
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "site"), 0o755))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "site/versions"), script, 0o755))
	run := func(name string, arguments ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, arguments...)
		cmd.Dir = dir
		out, err := cmd.Output()
		must.Succeed(t, err)
		return string(out)
	}
	run("git", "init", "-q")
	run("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "a")
	wantNewest := func(versions ...string) {
		t.Helper()
		var listed []struct {
			Version string
			Aliases []string
		}
		must.Succeed(t, json.Unmarshal([]byte(run("site/versions", "list")), &listed))
		var got []string
		for _, v := range listed {
			got = append(got, strings.Join(append([]string{v.Version}, v.Aliases...), " "))
		}
		if !slices.Equal(got, versions) {
			t.Errorf("the versions are %q, want %q", got, versions)
		}
	}
	wantNewest("main latest")
	run("git", "tag", "v0.1.0-rc.1")
	wantNewest("v0.1.0-rc.1", "main latest")
	for _, tag := range []string{"v0.1.0", "v0.2.0-rc.1", "v0.10.0", "v0.10.0-rc.1", "v0.11.0-rc.1"} {
		run("git", "tag", tag)
	}
	wantNewest("v0.11.0-rc.1", "v0.10.0 latest", "v0.10.0-rc.1", "v0.2.0-rc.1", "v0.1.0", "v0.1.0-rc.1", "main")
}

// webPage is what one page of the site refers to.
type webPage struct {
	ids          map[string]bool
	links, loads []string
}

// webPages returns the pages of version main, by their paths.
func webPages(t *testing.T, site fs.FS) map[string]webPage {
	t.Helper()
	all := map[string]webPage{}
	must.Succeed(t, fs.WalkDir(site, "main", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(file) != ".html" || path.Base(file) == "404.html" {
			return err
		}
		text, err := fs.ReadFile(site, file)
		must.Succeed(t, err)
		document, err := html.Parse(strings.NewReader(string(text)))
		must.Succeed(t, err)
		p := webPage{ids: map[string]bool{"": true}}
		for n := range document.Descendants() {
			attributes := map[string]string{}
			for _, a := range n.Attr {
				attributes[a.Key] = a.Val
			}
			p.ids[attributes["id"]] = true
			switch rel := attributes["rel"]; {
			case n.Data == "a" && attributes["href"] != "":
				p.links = append(p.links, attributes["href"])
			case n.Data == "link" && rel != "canonical" && rel != "prev" && rel != "next":
				p.loads = append(p.loads, attributes["href"])
			case n.Data != "a" && attributes["src"] != "":
				p.loads = append(p.loads, attributes["src"])
			}
		}
		all[file] = p
		return nil
	}))
	if len(all) < 30 {
		t.Fatalf("the site has only %d pages", len(all))
	}
	return all
}

// Every link leads to a page and an anchor of the site, and nothing is loaded from other hosts.
func TestSiteHasNoDeadLink(t *testing.T) {
	site := built(t)
	all := webPages(t, site)
	for file, p := range all {
		for i, ref := range append(p.loads, p.links...) {
			u, err := url.Parse(ref)
			switch {
			case err != nil:
				t.Errorf("%s: %v", file, err)
			case u.IsAbs() || u.Host != "":
				if i < len(p.loads) && u.Scheme != "data" {
					t.Errorf("%s loads %s from another host", file, ref)
				}
			default:
				to := file
				if u.Path != "" {
					to = path.Join(path.Dir(file), u.Path)
				}
				info, err := fs.Stat(site, to)
				if err == nil && info.IsDir() {
					to = path.Join(to, "index.html")
					_, err = fs.Stat(site, to)
				}
				if err != nil {
					t.Errorf("%s links to %s, which does not exist", file, ref)
				} else if other, isPage := all[to]; isPage && !other.ids[u.Fragment] {
					t.Errorf("%s links to %s, and there is no such heading", file, ref)
				}
			}
		}
	}
}
