package kafkatest

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// installTimeout limits the first use, which downloads some 100 MB.
const installTimeout = 10 * time.Minute

// errMissing reports that this machine lacks a program that is needed to run Kafka.
var errMissing = errors.New("this test runs a real Kafka")

//go:embed testdata/pom.xml
var pom []byte

var versionInPOM = regexp.MustCompile(`<kafka\.version>(.*)</`)

// version is the version of Kafka, except for a [Node] with another one.
var version = string(versionInPOM.FindSubmatch(pom)[1])

// Version returns the version of Kafka that tests run.
func Version() string { return version }

// kit has the files that a broker is started with.
type kit struct {
	java      string // the command
	classPath string
	archive   string // of loaded classes, for -XX:SharedArchiveFile
	store     string // formatted and empty
}

var kits sync.Map // by version; functions that return a kit

// installed returns the kit of a version, and installs it if it is missing. The process caches the
// result, also an error.
func installed(version string) (kit, error) {
	k, _ := kits.LoadOrStore(version, sync.OnceValues(func() (kit, error) {
		ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
		defer cancel()
		k, err := install(ctx, version)
		if err != nil {
			return kit{}, fmt.Errorf("install Kafka %s: %w", version, err)
		}
		return k, nil
	}))
	return k.(func() (kit, error))()
}

func install(ctx context.Context, version string) (kit, error) {
	java, javaVersion, err := findJava(ctx)
	if err != nil {
		return kit{}, err
	}
	pom := versionInPOM.ReplaceAll(pom, fmt.Appendf(nil, "<kafka.version>%s</", version))
	dir, err := cacheDir(version, pom)
	if err != nil {
		return kit{}, err
	}
	libs := filepath.Join(dir, "libs")
	if err := once(ctx, libs, func(dir string) error { return download(ctx, pom, dir) }); err != nil {
		return kit{}, err
	}
	classPath, err := jars(libs)
	if err != nil {
		return kit{}, err
	}
	// A JVM cannot use the class archive of another version.
	made := filepath.Join(dir, "java-"+digest(javaVersion))
	k := kit{
		java:      java,
		classPath: classPath,
		archive:   filepath.Join(made, "classes.jsa"),
		store:     filepath.Join(made, "store"),
	}
	if strings.HasPrefix(version, "2.") {
		return k, nil // it runs with ZooKeeper, and formats its store itself
	}
	err = once(ctx, made, func(dir string) error { return k.prepare(ctx, dir) })
	return k, err
}

// cacheDir returns the directory for the files of one pom.xml.
func cacheDir(version string, pom []byte) (string, error) {
	root := os.Getenv("KAFKATEST_DIR")
	if root == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("%w; set KAFKATEST_DIR", err)
		}
		root = filepath.Join(cache, "feedbridge-kafka")
	}
	root, err := filepath.Abs(root)
	return filepath.Join(root, version+"-"+digest(pom)), err
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:4])
}

var javaMajor = regexp.MustCompile(`version "(\d+)`)

// findJava returns the path of java, and the output of java -version.
func findJava(ctx context.Context) (path string, says []byte, err error) {
	path, err = exec.LookPath("java")
	if err != nil {
		return "", nil, fmt.Errorf("%w: no java on the PATH; install a JDK, 17 or newer", errMissing)
	}
	says, err = exec.CommandContext(ctx, path, "-version").CombinedOutput()
	if err != nil {
		return "", nil, fmt.Errorf("%w: %s does not run: %w\n%s", errMissing, path, err, says)
	}
	m := javaMajor.FindSubmatch(says)
	if m == nil {
		return "", nil, fmt.Errorf("%s -version does not tell its version: %s", path, says)
	}
	if major, err := strconv.Atoi(string(m[1])); err != nil || major < 17 {
		return "", nil, fmt.Errorf("%w: it takes Java 17 or newer, and %s is %s; install a newer JDK", errMissing, path, m[1])
	}
	return path, says, nil
}

// download has Maven copy the jars of pom into dir.
func download(ctx context.Context, pom []byte, dir string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("%w: no mvn on the PATH, and Kafka has not been downloaded yet; install Maven", errMissing)
	}
	project, err := os.MkdirTemp("", "kafkatest-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(project) }()
	file := filepath.Join(project, "pom.xml")
	if err := os.WriteFile(file, pom, 0o644); err != nil {
		return err
	}
	_, err = run(exec.CommandContext(ctx, mvn, "-q", "-B", "-Dstyle.color=never", "-f", file,
		"org.apache.maven.plugins:maven-dependency-plugin:copy-dependencies", "-DoutputDirectory="+dir))
	if err != nil {
		return fmt.Errorf("download from Maven Central, or from the mirror in ~/.m2/settings.xml: %w", err)
	}
	return nil
}

// jars returns the class path of all jars in dir. Its order is always the same,
// for an archive of loaded classes holds for one class path.
func jars(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jar"))
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", fmt.Errorf("%s has no jars; remove it, and it will be filled again", dir)
	}
	slices.Sort(files)
	return strings.Join(files, string(filepath.ListSeparator)), nil
}
