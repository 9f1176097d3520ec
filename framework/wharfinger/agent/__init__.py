"""The process that goes on: driver instances at their paces, each in a thread of its own.

What a cycle is, and what it asks of Placement, is the tracker's. Nothing is printed here.
"""
