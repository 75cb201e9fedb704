package boltdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// The format of bbolt, as far as a check needs it. A file is pages of one size; the first two are meta pages, of which
// the valid one with the higher transaction counts. All numbers have the machine's byte order.
//
//	page    id 8, flags 2, count 2, overflow 4 (further pages that belong to it), then the elements
//	meta    magic 4, version 4, page size 4, flags 4, root 8, sequence 8, free list 8, pages 8, transaction 8, FNV-1a of it 8
//	branch  position 4, key size 4, page 8              (position: from the element's own first byte)
//	leaf    flags 4, position 4, key size 4, value size 4
//	bucket  (value of a leaf element with flag 1) root 8, sequence 8; root 0: a page follows in the value itself
const (
	magic       = 0xED0CDAED
	version     = 2
	headerSize  = 16
	elementSize = 16
	metaSize    = 64
	bucketSize  = 16

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketLeaf   = 0x01
	noFreelist   = ^uint64(0)

	maxDepth = 64 // of pages and of buckets in buckets; a real one has 5
)

// check walks all pages of a bbolt database that can be reached, without bbolt. What is in values is not looked at. The
// error is ErrDamaged if the file is; an empty file is a new database.
func check(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() == 0 {
		return nil
	}
	c := checker{file: f, size: st.Size()}
	if err := c.run(); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

type checker struct {
	file     io.ReaderAt
	size     int64
	pageSize int64
	pages    uint64   // below the high-water mark
	seen     []uint64 // a bit for each page that was met
}

type meta struct {
	pageSize       uint32
	root, freelist uint64
	pages, txid    uint64
}

func (c *checker) run() error {
	meta, err := c.meta()
	if err != nil {
		return err
	}
	c.pageSize, c.pages = int64(meta.pageSize), meta.pages
	if c.pages < 4 || c.pages > uint64(c.size)/uint64(c.pageSize) {
		return fmt.Errorf("%d pages of %d bytes in a file of %d", c.pages, c.pageSize, c.size)
	}
	c.seen = make([]uint64, c.pages/64+1)
	c.meet(0)
	c.meet(1)
	if meta.freelist != noFreelist {
		if err := c.freelist(meta.freelist); err != nil {
			return err
		}
	}
	return c.page(meta.root, 0, nil, nil)
}

// meta is that of the two metas which bbolt will use.
func (c *checker) meta() (meta, error) {
	b := make([]byte, headerSize+metaSize)
	read := func(off int64) (m meta, ok bool) {
		if _, err := c.file.ReadAt(b, off); err != nil {
			return m, false
		}
		e, p := binary.NativeEndian, b[headerSize:]
		sum := fnv.New64a()
		sum.Write(p[:metaSize-8])
		m = meta{e.Uint32(p[8:]), e.Uint64(p[16:]), e.Uint64(p[32:]), e.Uint64(p[40:]), e.Uint64(p[48:])}
		sizeOK := m.pageSize >= 1024 && m.pageSize <= 1<<20 && m.pageSize&(m.pageSize-1) == 0
		return m, e.Uint32(p) == magic && e.Uint32(p[4:]) == version && e.Uint64(p[56:]) == sum.Sum64() && sizeOK
	}
	first, ok0 := read(0)
	// Without the first meta the page size is not known but by the second, which says where it stands.
	second, ok1 := meta{}, false
	if ok0 {
		second, ok1 = read(int64(first.pageSize))
	} else {
		for size := int64(1024); size <= 1<<20 && !ok1; size *= 2 {
			second, ok1 = read(size)
			ok1 = ok1 && int64(second.pageSize) == size
		}
	}
	switch {
	case ok0 && ok1 && second.pageSize != first.pageSize:
		return meta{}, errors.New("two page sizes")
	case ok0 && (!ok1 || first.txid > second.txid):
		return first, nil
	case ok1:
		return second, nil
	}
	return meta{}, errors.New("no valid meta page")
}

// meet is false if the page was met before.
func (c *checker) meet(page uint64) bool {
	bit := uint64(1) << (page % 64)
	if c.seen[page/64]&bit != 0 {
		return false
	}
	c.seen[page/64] |= bit
	return true
}

// take reads a page with its overflow, headers and keys at least. Each page may be taken once.
func (c *checker) take(id uint64) (p []byte, end int64, err error) {
	head := make([]byte, headerSize)
	if id >= c.pages {
		return nil, 0, fmt.Errorf("page %d of %d", id, c.pages)
	}
	if _, err := c.file.ReadAt(head, int64(id)*c.pageSize); err != nil {
		return nil, 0, err
	}
	e := binary.NativeEndian
	overflow := uint64(e.Uint32(head[12:]))
	if e.Uint64(head) != id || overflow >= c.pages-id {
		return nil, 0, fmt.Errorf("page %d calls itself %d with %d more", id, e.Uint64(head), overflow)
	}
	for i := id; i <= id+overflow; i++ {
		if !c.meet(i) {
			return nil, 0, fmt.Errorf("page %d is used twice", i)
		}
	}
	// Elements come first; keys and values after them. A page of values of megabytes is not read in full.
	end = int64(overflow+1) * c.pageSize
	n := min(end, max(c.pageSize, headerSize+elementSize*int64(e.Uint16(head[10:]))))
	p = make([]byte, n)
	_, err = c.file.ReadAt(p, int64(id)*c.pageSize)
	return p, end, err
}

func (c *checker) freelist(id uint64) error {
	p, end, err := c.take(id)
	if err != nil {
		return err
	}
	e := binary.NativeEndian
	if e.Uint16(p[8:]) != freelistPage {
		return fmt.Errorf("page %d is no free list", id)
	}
	b := make([]byte, end-headerSize)
	if _, err := c.file.ReadAt(b, int64(id)*c.pageSize+headerSize); err != nil {
		return err
	}
	n := uint64(e.Uint16(p[10:]))
	if n == 0xffff {
		n, b = e.Uint64(b), b[8:]
	}
	if n > uint64(len(b)/8) {
		return fmt.Errorf("a free list of %d pages in %d bytes", n, len(b))
	}
	before := uint64(1)
	for i := range n {
		free := e.Uint64(b[8*i:])
		if free <= before || free >= c.pages || !c.meet(free) {
			return fmt.Errorf("page %d cannot be free", free)
		}
		before = free
	}
	return nil
}

// page checks a branch or leaf page and all below it. Its keys are from least on and below most, where those are given.
func (c *checker) page(id uint64, depth int, least, most []byte) error {
	if depth > maxDepth {
		return errors.New("pages within pages without end")
	}
	p, end, err := c.take(id)
	if err != nil {
		return err
	}
	at := func(off, n int64) ([]byte, error) { // of the page
		if off+n <= int64(len(p)) {
			return p[off : off+n], nil
		}
		b := make([]byte, n)
		_, err := c.file.ReadAt(b, int64(id)*c.pageSize+off)
		return b, err
	}
	if err := c.elements(p, end, at, depth, least, most); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

func (c *checker) elements(p []byte, end int64, at func(off, n int64) ([]byte, error), depth int, least, most []byte) error {
	e := binary.NativeEndian
	flags, count := e.Uint16(p[8:]), int64(e.Uint16(p[10:]))
	if flags != branchPage && flags != leafPage {
		return fmt.Errorf("flags %#x", flags)
	}
	if headerSize+count*elementSize > end || flags == branchPage && count == 0 {
		return fmt.Errorf("%d elements", count)
	}
	body := headerSize + count*elementSize
	type branch struct {
		key  []byte
		page uint64
	}
	var below []branch
	before := least
	for i := range count {
		start := headerSize + i*elementSize
		x, err := at(start, elementSize)
		if err != nil {
			return err
		}
		var off, ksize, vsize int64
		if flags == branchPage {
			off, ksize = int64(e.Uint32(x)), int64(e.Uint32(x[4:]))
		} else {
			off, ksize, vsize = int64(e.Uint32(x[4:])), int64(e.Uint32(x[8:])), int64(e.Uint32(x[12:]))
		}
		if off += start; off < body || off+ksize+vsize > end || ksize > 1<<15 {
			return fmt.Errorf("element %d lies outside", i)
		}
		key, err := at(off, ksize)
		if err != nil {
			return err
		}
		// The least key of a branch may be lower than what is in the page below it, never higher.
		if order := bytes.Compare(key, before); before != nil && (order < 0 || order == 0 && i > 0) || most != nil && bytes.Compare(key, most) >= 0 {
			return fmt.Errorf("element %d is out of order", i)
		}
		before = key
		switch {
		case flags == branchPage:
			below = append(below, branch{key, e.Uint64(x[8:])})
		case e.Uint32(x) == bucketLeaf:
			if vsize > c.pageSize {
				return fmt.Errorf("a bucket of %d bytes in element %d", vsize, i)
			}
			v, err := at(off+ksize, vsize)
			if err != nil {
				return err
			}
			if err := c.bucket(v, depth); err != nil {
				return fmt.Errorf("bucket in element %d: %w", i, err)
			}
		case e.Uint32(x) != 0:
			return fmt.Errorf("element %d: flags %#x", i, e.Uint32(x))
		}
	}
	for i, b := range below {
		next := most
		if i+1 < len(below) {
			next = below[i+1].key
		}
		if err := c.page(b.page, depth+1, b.key, next); err != nil {
			return err
		}
	}
	return nil
}

// bucket checks a bucket by its value in its parent.
func (c *checker) bucket(v []byte, depth int) error {
	if len(v) < bucketSize {
		return errors.New("too short")
	}
	if root := binary.NativeEndian.Uint64(v); root != 0 {
		return c.page(root, depth+1, nil, nil)
	}
	p := v[bucketSize:]
	if len(p) < headerSize {
		return errors.New("too short for the page in it")
	}
	if depth > maxDepth || binary.NativeEndian.Uint16(p[8:]) != leafPage {
		return errors.New("the page in it is no leaf")
	}
	at := func(off, n int64) ([]byte, error) { return p[off : off+n], nil }
	return c.elements(p, int64(len(p)), at, depth+1, nil, nil)
}
