//! Doubly linked lists of frames whose links lie in two arrays the caller gives, eight bytes a frame.
//!
//! Every policy keeps its order in these lists; nobody else uses them.
//!
//! The lists are circular and each has a node of its own behind the frames (its *end*), so linking and unlinking have
//! no special cases: the end's `next` is the front, its `prev` the back. A frame that is in no list is linked to
//! itself, which is how membership is known without another bit. A frame is in at most one list by construction,
//! since it has one pair of links.
//!
//! A link is stored as the exclusive or of the two nodes' numbers. So zeroed memory is a set of frames of which each is
//! linked to itself, and a frame that is never used costs no memory and no time.

/// Several lists over one set of frames, each frame in at most one of them.
#[derive(Debug)]
pub struct Links<'a> {
    next: &'a mut [u32],
    prev: &'a mut [u32],
    frames: u32,
}

impl<'a> Links<'a> {
    /// Makes all lists empty; all entries of both slices are zero. The first `frames` entries are the frames' links, the
    /// others the ends of the lists: there are as many lists as entries behind the frames.
    ///
    /// # Panics
    ///
    /// When the slices differ in length, are shorter than `frames` or longer than `u32::MAX`.
    pub fn new(next: &'a mut [u32], prev: &'a mut [u32], frames: u32) -> Self {
        assert_eq!(next.len(), prev.len(), "both link arrays have one entry a node");
        assert!(
            next.len() >= frames as usize && next.len() <= u32::MAX as usize,
            "one node a frame, named by a u32"
        );
        Self { next, prev, frames }
    }

    /// The number of frames, linked or not.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// The number of lists.
    pub fn lists(&self) -> usize {
        self.next.len() - self.frames as usize
    }

    /// Whether `frame` is in a list. A number that is no frame is in none.
    pub fn is_linked(&self, frame: u32) -> bool {
        frame < self.frames && self.next(frame) != frame
    }

    /// The oldest frame of a list: the one pushed at the back first.
    pub fn front(&self, list: u32) -> Option<u32> {
        self.frame(self.next(self.end(list)))
    }

    /// The newest frame of a list.
    pub fn back(&self, list: u32) -> Option<u32> {
        self.frame(self.prev(self.end(list)))
    }

    /// Whether a list holds no frame.
    pub fn is_empty(&self, list: u32) -> bool {
        self.front(list).is_none()
    }

    /// Puts a frame that is in no list at the back of `list`. Panics if it is no frame.
    pub fn push_back(&mut self, list: u32, frame: u32) {
        // Behind the frames lie the ends of the lists: writing there would lose whole lists.
        assert!(frame < self.frames, "frame {frame} is beyond the capacity of {}", self.frames);
        debug_assert!(!self.is_linked(frame), "frame {frame} is already in a list");
        let end = self.end(list);
        let last = self.prev(end);
        self.join(last, frame);
        self.join(frame, end);
    }

    /// Takes a frame out of the list it is in; without effect when it is in none. Panics if it is no frame.
    pub fn unlink(&mut self, frame: u32) {
        assert!(frame < self.frames, "frame {frame} is beyond the capacity of {}", self.frames);
        let (next, prev) = (self.next(frame), self.prev(frame));
        self.join(prev, next);
        self.join(frame, frame);
    }

    /// Moves all of `from` behind the back of `to`, another list.
    pub fn append(&mut self, to: u32, from: u32) {
        let (to, from) = (self.end(to), self.end(from));
        let (first, last) = (self.next(from), self.prev(from));
        if first == from || to == from {
            return;
        }
        self.join(self.prev(to), first);
        self.join(last, to);
        self.join(from, from);
    }

    /// The frames of a list, oldest first.
    pub fn iter(&self, list: u32) -> impl Iterator<Item = u32> + '_ {
        core::iter::successors(self.front(list), |&frame| self.frame(self.next(frame)))
    }

    fn next(&self, node: u32) -> u32 {
        self.next[node as usize] ^ node
    }

    fn prev(&self, node: u32) -> u32 {
        self.prev[node as usize] ^ node
    }

    /// Makes `after` the node that follows `before`.
    fn join(&mut self, before: u32, after: u32) {
        self.next[before as usize] = before ^ after;
        self.prev[after as usize] = before ^ after;
    }

    fn end(&self, list: u32) -> u32 {
        debug_assert!((list as usize) < self.lists(), "list {list} does not exist");
        self.frames + list
    }

    fn frame(&self, node: u32) -> Option<u32> {
        (node < self.frames).then_some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_and_change_lists_in_order() {
        let (mut next, mut prev) = ([0; 6], [0; 6]);
        let mut links = Links::new(&mut next, &mut prev, 4);
        assert_eq!(links.lists(), 2);
        assert!(links.is_empty(0) && !links.is_linked(0) && !links.is_linked(4));
        for frame in 0..4 {
            links.push_back(0, frame);
        }
        links.unlink(1);
        links.unlink(1);
        links.push_back(1, 1);
        links.unlink(0);
        links.push_back(0, 0);
        assert!(links.iter(0).eq([2, 3, 0]) && links.iter(1).eq([1]));
        assert_eq!((links.front(0), links.back(0)), (Some(2), Some(0)));
        links.append(1, 0);
        assert!(links.iter(1).eq([1, 2, 3, 0]) && links.is_empty(0));
        links.append(1, 0);
        links.append(0, 1);
        assert!(links.iter(0).eq([1, 2, 3, 0]) && links.is_empty(1));
    }
}
